//! `GET /metrics`: counters, gauges and histograms in the text format of OpenMetrics 1.0, which Prometheus reads.

use std::fmt::{Debug, Error, Formatter};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text::encode};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Inside;
use super::look::Look;
use super::reply::Reply;
use super::status::CLASSES;
use crate::app::{Lifecycle, Pool};
use crate::counters::{
    Bounds, Count, Distribution, Histogram, IoCounters, PoolCounters, REQUEST_BOUNDS_US,
    TICK_BOUNDS_US,
};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub fn text(inside: &Inside) -> Reply {
    let sites = inside.live.sites();
    let scrape = Scrape {
        look: Look::at(sites.pools().cloned().collect()),
        counters: inside.counters.clone(),
        connections: inside.io_threads.connections() as u64,
        spilled_bytes: inside.io_threads.spilled_bytes() as u64,
        uptime_s: inside.started.elapsed().as_secs_f64(),
    };
    let mut registry = Registry::with_prefix("baton");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => Reply::text(CONTENT_TYPE, text),
        // Writing to a String does not fail.
        Err(error) => Reply::problem(500, &error.to_string()),
    }
}

/// Everything that there is to tell, at one moment.
struct Scrape {
    look: Look,
    counters: Arc<[IoCounters]>,
    connections: u64,
    spilled_bytes: u64,
    uptime_s: f64,
}

impl Debug for Scrape {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrape").finish_non_exhaustive()
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut out = Out(encoder);
        self.server(&mut out)?;
        self.pools(&mut out)
    }
}

type Labels<'l, const N: usize> = [(&'static str, &'l str); N];

struct Out<'e>(DescriptorEncoder<'e>);

impl Out<'_> {
    fn info(&mut self, name: &str, help: &str, labels: Labels<'_, 1>) -> Result<(), Error> {
        let mut family = self.family(name, help, None, MetricType::Info)?;
        family.encode_info(&labels)
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: f64,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Gauge)?;
        family.encode_gauge(&value)
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: u64,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        series: impl IntoIterator<Item = (Labels<'l, N>, f64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, unit, MetricType::Gauge)?;
        for (labels, value) in series {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l, N>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, None, MetricType::Counter)?;
        for (labels, value) in series {
            let mut one = family.encode_family(&labels)?;
            one.encode_counter::<NoLabelSet, u64, f64>(&value, None)?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, all: &Distribution) -> Result<(), Error> {
        let mut family = self.family(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        encode_histogram(&mut family, all)
    }

    fn histograms<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'l, N>, Distribution)>,
    ) -> Result<(), Error> {
        let mut family = self.family(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, all) in series {
            encode_histogram(&mut family.encode_family(&labels)?, &all)?;
        }
        Ok(())
    }

    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        unit: Option<&'s Unit>,
        metric_type: MetricType,
    ) -> Result<MetricEncoder<'s>, Error> {
        self.0.encode_descriptor(name, help, unit, metric_type)
    }
}

fn encode_histogram(encoder: &mut MetricEncoder<'_>, all: &Distribution) -> Result<(), Error> {
    let sum_s = all.sum_us as f64 / 1e6;
    encoder.encode_histogram::<NoLabelSet>(sum_s, all.count(), &all.buckets(), None)
}

impl Scrape {
    fn sum(&self, of: impl Fn(&IoCounters) -> &Count) -> u64 {
        self.counters.iter().map(|io| of(io).get()).sum()
    }

    fn server(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        out.info("build", "The server.", version)?;
        let seconds = Some(&Unit::Seconds);
        let bytes = Some(&Unit::Bytes);
        out.gauge("uptime", "Since its start.", seconds, self.uptime_s)?;
        let connections = self.connections as f64;
        out.gauge("connections", "Open connections.", None, connections)?;
        let help = "Replies that wait in the server for slow clients.";
        out.gauge("spilled", help, bytes, self.spilled_bytes as f64)?;
        let help = "Requests, those for files included.";
        out.counter("requests", help, None, self.sum(|io| &io.requests))?;
        let classes = CLASSES.iter().enumerate();
        let replies = classes.map(|(n, class)| {
            let labels = [("class", *class)];
            (labels, self.sum(|io| &io.replies[n]))
        });
        out.counters("replies", "Replies by the class of their status.", replies)?;
        let help = "Replies that were broken off.";
        out.counter("replies_cut", help, None, self.sum(|io| &io.cut))?;
        let body_bytes = self.sum(|io| &io.request_body_bytes);
        out.counter("request_body", "Received.", bytes, body_bytes)?;
        let body_bytes = self.sum(|io| &io.reply_body_bytes);
        out.counter(
            "reply_body",
            "Sent, without chunk framing.",
            bytes,
            body_bytes,
        )?;
        let all = self.distribution(&REQUEST_BOUNDS_US, |io| &io.duration);
        let help = "From a request's whole head to the end of its reply.";
        out.histogram("request_duration", help, &all)?;
        let ticks = self.sum(|io| &io.ticks);
        out.counter("ticks", "Turns of I/O threads.", None, ticks)?;
        let all = self.distribution(&TICK_BOUNDS_US, |io| &io.tick);
        out.histogram("tick", "How long one in 16 of them took.", &all)
    }

    fn distribution(
        &self,
        bounds_us: &'static Bounds,
        of: impl Fn(&IoCounters) -> &Histogram,
    ) -> Distribution {
        Distribution::of(bounds_us, self.counters.iter().map(of))
    }

    fn pools(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let up = self.each(|pool, [app, worker]| {
            // One that sleeps is not down.
            let is_up = pool.is_up() || pool.is_dormant();
            [([app, worker], f64::from(u8::from(is_up)))]
        });
        out.gauges("app_up", "1 unless it cannot start.", None, up)?;
        let threads = self.look.pools.iter().flat_map(|look| {
            let [app, worker] = labels_of(&look.pool);
            let counts = look.counts();
            let states = [
                ("idle", counts.idle),
                ("busy", counts.busy),
                ("starting", counts.starting),
                ("stopping", counts.stopping),
            ];
            states.map(|(state, count)| ([app, worker, ("state", state)], count as f64))
        });
        out.gauges("threads", "Threads by state.", None, threads)?;
        self.scaling(out)?;
        let waiting = self.look.pools.iter();
        let waiting = waiting.map(|look| (labels_of(&look.pool), look.waiting as f64));
        let help = "Requests that wait for a thread.";
        out.gauges("queue_waiting", help, None, waiting)?;
        let oldest = self.look.pools.iter().map(|look| {
            let oldest_s = look.oldest_wait_ms as f64 / 1e3;
            (labels_of(&look.pool), oldest_s)
        });
        let seconds = Some(&Unit::Seconds);
        let help = "How long the oldest of them has waited.";
        out.gauges("queue_oldest_wait", help, seconds, oldest)?;
        let help = "How long requests waited until a thread got them.";
        let waits = self.each(|pool, labels| [(labels, distribution(pool, |io| &io.queue_wait))]);
        out.histograms("queue_wait", help, waits)?;
        let help = "How long threads were busy with a request, waiting not included.";
        let services = self.each(|pool, labels| [(labels, distribution(pool, |io| &io.service))]);
        out.histograms("service", help, services)?;
        let failed = self.each(failures);
        out.counters(
            "requests_failed",
            "Requests that got no reply of the app's.",
            failed,
        )?;
        let not_taken = self.each(|pool, labels| [(labels, sum(pool, |io| &io.not_taken))]);
        let help = "Requests that a thread let lie, so that another got them.";
        out.counters("offers_taken_back", help, not_taken)?;
        self.lifecycles(out)
    }

    fn scaling(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let bounds = self.each(|pool, [app, worker]| {
            let scaling = pool.scaling();
            let of = |bound, count| ([app, worker, ("bound", bound)], f64::from(count));
            [
                of("wanted", scaling.wanted),
                of("by hand", scaling.by_hand),
                of("min", scaling.threads_min),
                of("max", scaling.threads_max),
            ]
        });
        let help = "How many threads are wanted, were added by hand, must and may be there.";
        out.gauges("threads_bounds", help, None, bounds)?;
        let decisions = self.each(|pool, [app, worker]| {
            let counts = pool.decision_counts();
            let of = |action, count| ([app, worker, ("action", action)], count);
            [
                of("start", counts.start),
                of("stop", counts.stop),
                of("hold", counts.hold),
            ]
        });
        let help = "Decisions about the number of threads; GET /decisions has the reasons.";
        out.counters("scaling_decisions", help, decisions)
    }

    fn lifecycles(&self, out: &mut Out<'_>) -> Result<(), Error> {
        let pools = self.look.pools.iter().map(|look| &look.pool);
        let all: Vec<(Labels<'_, 2>, Lifecycle)> = pools
            .map(|pool| (labels_of(pool), pool.lifecycle().clone()))
            .collect();
        let ended = all.iter().flat_map(|([app, worker], lifecycle)| {
            let ended = lifecycle.ended.iter();
            ended.map(|(reason, count)| ([*app, *worker, ("reason", reason.as_str())], *count))
        });
        let help = "Processes that have ended: done, by an exit code, or by a signal.";
        out.counters("processes_ended", help, ended)?;
        let restarts = all.iter().flat_map(|([app, worker], lifecycle)| {
            let results = [
                ("done", lifecycle.restarts),
                ("failed", lifecycle.restarts_failed),
            ];
            results.map(|(result, count)| ([*app, *worker, ("result", result)], count))
        });
        out.counters("restarts", "Restarts that have ended.", restarts)
    }

    fn each<'s, T, I: IntoIterator<Item = T>>(
        &'s self,
        of: impl Fn(&'s Pool, Labels<'s, 2>) -> I,
    ) -> impl Iterator<Item = T> {
        let pools = self.look.pools.iter().map(|look| &*look.pool);
        pools.flat_map(move |pool| of(pool, labels_of(pool)))
    }
}

/// A regular pool's worker is empty.
fn labels_of(pool: &Pool) -> Labels<'_, 2> {
    let worker = pool.worker.as_ref();
    [
        ("app", &*pool.app.project.name),
        ("worker", worker.map_or("", |worker| &*worker.name)),
    ]
}

fn sum(pool: &Pool, of: impl Fn(&PoolCounters) -> &Count) -> u64 {
    pool.counters().iter().map(|io| of(io).get()).sum()
}

fn distribution(pool: &Pool, of: impl Fn(&PoolCounters) -> &Histogram) -> Distribution {
    Distribution::of(&REQUEST_BOUNDS_US, pool.counters().iter().map(of))
}

fn failures<'p>(pool: &'p Pool, [app, worker]: Labels<'p, 2>) -> [(Labels<'p, 3>, u64); 5] {
    let of = |reason, of: fn(&PoolCounters) -> &Count| {
        ([app, worker, ("reason", reason)], sum(pool, of))
    };
    [
        of("queue full", |io| &io.queue_full),
        of("waited too long", |io| &io.waited_too_long),
        of("client left", |io| &io.left_waiting),
        of("process ended", |io| &io.process_ended),
        of("deadline", |io| &io.over_deadline),
    ]
}
