//! Replies of the admin API, for people.

use serde_json::Value;

use super::table::{Table, readable};

/// What is shown of a URI at most, in characters.
const URI_CHARS_MAX: usize = 80;

pub fn status(reply: &Value) -> String {
    let replies = reply["replies"].as_object().into_iter().flatten();
    let replies = replies.filter(|(_, count)| **count != 0);
    let replies = replies.map(|(class, count)| format!(", {class} {count}"));
    let mut text = format!(
        "baton {}, pid {}, {} for {}\nconnections {}, requests {}{}\n\n",
        word(&reply["version"]),
        reply["pid"],
        word(&reply["state"]),
        span(reply["uptime_s"].as_f64()),
        reply["connections"],
        reply["requests"],
        replies.collect::<String>(),
    );
    let mut table = Table::new(&[
        "APP", "WORKER", "STATE", "IDLE", "BUSY", "STARTING", "STOPPING", "WAITING", "REQUESTS",
    ]);
    let mut failures = String::new();
    for app in list(&reply["apps"]) {
        for pool in list(&app["pools"]) {
            let threads = &pool["threads"];
            let mut cells = vec![
                word(&app["name"]),
                word(&pool["worker"]),
                match pool["restarting"] == true {
                    true => "restarting".into(),
                    false => word(&pool["state"]),
                },
            ];
            let counts = ["idle", "busy", "starting", "stopping"].map(|name| word(&threads[name]));
            cells.extend(counts);
            cells.push(word(&pool["queue"]["waiting"]));
            cells.push(word(&pool["requests"]));
            table.row(cells);
            let failure = &pool["last_failure"];
            if let Some(reason) = failure["reason"].as_str() {
                failures.push_str(&format!(
                    "\n{}: {} ago: {}\n",
                    readable(&word(&app["name"])),
                    span(failure["ago_s"].as_f64()),
                    readable(reason)
                ));
            }
        }
    }
    text.push_str(&table.text());
    text + &failures
}

pub fn threads(reply: &Value) -> String {
    let mut table = Table::new(&[
        "ID", "APP", "WORKER", "PID", "STATE", "FOR", "REQUESTS", "MEMORY", "CPU", "REQUEST",
    ]);
    for thread in list(&reply["threads"]) {
        let request = &thread["request"];
        let uri = request["uri"].as_str().map(|uri| {
            let short: String = uri.chars().take(URI_CHARS_MAX).collect();
            format!("{} {short}", word(&request["method"]))
        });
        let memory = thread["memory"]["bytes"].as_f64();
        table.row(vec![
            word(&thread["id"]),
            word(&thread["app"]),
            word(&thread["worker"]),
            word(&thread["pid"]),
            word(&thread["state"]),
            span(thread["state_s"].as_f64()),
            word(&thread["requests"]),
            memory.map_or_else(dash, |bytes| format!("{:.1} MiB", bytes / 1024.0 / 1024.0)),
            thread["cpu_share"]
                .as_f64()
                .map_or_else(dash, |share| format!("{:.1} %", share * 100.0)),
            uri.unwrap_or_default(),
        ]);
    }
    table.text()
}

pub fn changed(reply: &Value) -> String {
    let worker = reply["worker"].as_str();
    let worker = worker.map_or(String::new(), |worker| format!(", worker {worker}"));
    let name = readable(&format!("{}{worker}", word(&reply["app"])));
    format!("{name}: {} threads wanted\n", word(&reply["wanted"]))
}

pub fn restarted(reply: &Value) -> String {
    let names = list(&reply["restarting"]).map(word).collect::<Vec<_>>();
    format!("restarted {}\n", readable(&names.join(", ")))
}

pub fn reloaded(reply: &Value) -> String {
    format!("{}\n", readable(&word(&reply["result"])))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn word(value: &Value) -> String {
    match value {
        Value::Null => dash(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn dash() -> String {
    "-".into()
}

fn span(seconds: Option<f64>) -> String {
    match seconds {
        None => dash(),
        Some(s) if s < 10.0 => format!("{s:.3} s"),
        Some(s) if s < 120.0 => format!("{s:.0} s"),
        Some(s) if s < 7200.0 => format!("{:.0} min", s / 60.0),
        Some(s) if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        Some(s) => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn threads_are_a_table() {
        let reply = json!({"threads": [
            {"id": "1.1", "app": "shop", "worker": null, "pid": 7, "state": "busy", "state_s": 0.25,
             "request": {"method": "GET", "uri": "/a\u{1b}[1m"}, "requests": 3,
             "memory": {"bytes": 3_145_728, "kind": "pss"}, "cpu_share": 0.5},
            {"id": "1.2", "app": "shop", "worker": null, "pid": null, "state": "starting", "state_s": 130,
             "request": null, "requests": 0, "memory": null, "cpu_share": null},
        ]});
        let text = threads(&reply);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let first: Vec<&str> = lines[1].split_whitespace().collect();
        let expected = [
            "1.1", "shop", "-", "7", "busy", "0.250", "s", "3", "3.0", "MiB", "50.0", "%", "GET",
            "/a[1m",
        ];
        assert_eq!(first, expected);
        assert!(lines[2].contains("2 min"), "{text}");
    }

    #[test]
    fn whatever_comes_back_is_shown_somehow() {
        for reply in [
            json!(null),
            json!([]),
            json!({"apps": 7, "threads": [null]}),
        ] {
            let _ = (status(&reply), threads(&reply), restarted(&reply));
        }
    }
}
