//! A level over time: a constant, or stages that ramp from one level to the next.
//!
//! `20s:100,30s:200,10s:0` begins at 0, reaches 100 after 20 s in a straight line, 200 after 30 s
//! more, and 0 after another 10 s. A stage of `0s` jumps. The same form says how many connections
//! are open, and how many requests are due per second.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::span::{SECOND_NS, SPAN_S_MAX, Span};

const STAGES_MAX: usize = 1_000;
/// More than any one machine can send in a second, or open.
const LEVEL_MAX: f64 = 10_000_000.0;

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Profile {
    text: String,
    /// In order of time; at least one. Beyond the last the level stays.
    pieces: Vec<Piece>,
    level_max: f64,
    /// None: a constant, which has no end of its own.
    length_ns: Option<u64>,
}

/// A straight line from `level` at `start_s`, rising by `slope` per second until the next piece.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    start_s: f64,
    level: f64,
    slope: f64,
    /// The area under all pieces before.
    area: f64,
}

/// In a scenario file a constant may be written as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Whole(u64),
    Fraction(f64),
    Text(String),
}

impl Profile {
    pub fn constant(level: u32) -> Profile {
        Profile::flat(level.to_string(), f64::from(level))
    }

    fn flat(text: String, level: f64) -> Profile {
        let piece = Piece {
            start_s: 0.0,
            level,
            slope: 0.0,
            area: 0.0,
        };
        Profile {
            text,
            pieces: vec![piece],
            level_max: level,
            length_ns: None,
        }
    }

    /// None: constant.
    pub fn length_ns(&self) -> Option<u64> {
        self.length_ns
    }

    /// The level at a time since the start.
    pub fn level(&self, at_ns: u64) -> f64 {
        let at_s = at_ns as f64 / SECOND_NS as f64;
        let after = self.pieces.partition_point(|piece| piece.start_s <= at_s);
        let piece = &self.pieces[after.saturating_sub(1)];
        (piece.level + piece.slope * (at_s - piece.start_s)).max(0.0)
    }

    pub fn level_max(&self) -> f64 {
        self.level_max
    }

    /// The area under the level since the start: of a rate, how many requests were due.
    pub fn area(&self, at_ns: u64) -> f64 {
        let at_s = at_ns as f64 / SECOND_NS as f64;
        let after = self.pieces.partition_point(|piece| piece.start_s <= at_s);
        let piece = &self.pieces[after.saturating_sub(1)];
        let wide_s = at_s - piece.start_s;
        piece.area + piece.level * wide_s + piece.slope * wide_s * wide_s / 2.0
    }

    /// From the first piece on, as a schedule asks in order.
    pub fn inverse(&self) -> Inverse {
        Inverse {
            pieces: self.pieces.clone(),
            at: 0,
        }
    }
}

/// When the area under a profile reaches a value: when the nth request of a rate is due.
#[derive(Clone, Debug)]
pub struct Inverse {
    pieces: Vec<Piece>,
    at: usize,
}

impl Inverse {
    /// Nanoseconds since the start. None: never, as the level stays at 0. Areas come in rising order.
    pub fn when(&mut self, area: f64) -> Option<u64> {
        while let Some(next) = self.pieces.get(self.at + 1)
            && next.area <= area
        {
            // A request that is due just as the level becomes 0 for good is not sent.
            self.at += 1;
        }
        let piece = self.pieces[self.at];
        let missing = area - piece.area;
        // level * t + slope * t^2 / 2 = missing, in the form that loses no digits when slope is small.
        let root = (piece.level * piece.level + 2.0 * piece.slope * missing)
            .max(0.0)
            .sqrt();
        let divisor = piece.level + root;
        let after_s = if missing <= 0.0 && (piece.level > 0.0 || piece.slope > 0.0) {
            0.0
        } else if divisor > 0.0 {
            2.0 * missing / divisor
        } else {
            return None;
        };
        let at_ns = (piece.start_s + after_s) * SECOND_NS as f64;
        (at_ns <= (SPAN_S_MAX * SECOND_NS) as f64).then_some(at_ns as u64)
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Profile, String> {
        if !text.contains(':') {
            return Ok(Profile::flat(text.into(), level(text)?));
        }
        let mut pieces = Vec::new();
        let (mut now_ns, mut from, mut area, mut level_max) = (0, 0.0, 0.0, 0.0_f64);
        for stage in text.split(',') {
            let (span, to) = stage.split_once(':').ok_or_else(|| {
                format!("`{stage}` is no stage; write DURATION:LEVEL, such as 20s:100,10s:0")
            })?;
            let (span, to): (Span, f64) = (span.trim().parse()?, level(to.trim())?);
            if span.ns() > 0 {
                level_max = level_max.max(from).max(to);
                let slope = (to - from) / span.as_seconds();
                pieces.push(Piece {
                    start_s: now_ns as f64 / SECOND_NS as f64,
                    level: from,
                    slope,
                    area,
                });
                area += (from + to) / 2.0 * span.as_seconds();
                now_ns += span.ns();
            }
            from = to;
            if pieces.len() > STAGES_MAX {
                return Err(format!("more than {STAGES_MAX} stages"));
            }
        }
        if now_ns == 0 || now_ns > SPAN_S_MAX * SECOND_NS {
            return Err(format!(
                "`{text}`: the stages must last longer than 0 s and no longer than a week"
            ));
        }
        pieces.push(Piece {
            start_s: now_ns as f64 / SECOND_NS as f64,
            level: from,
            slope: 0.0,
            area,
        });
        let profile = Profile {
            text: text.into(),
            pieces,
            level_max,
            length_ns: Some(now_ns),
        };
        match level_max > 0.0 {
            true => Ok(profile),
            false => Err(format!("`{text}` is 0 throughout")),
        }
    }
}

fn level(text: &str) -> Result<f64, String> {
    // The parser of f64 also takes inf, NaN and 1e9.
    let plain = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    match text.parse::<f64>() {
        Ok(level) if plain && level <= LEVEL_MAX => Ok(level),
        _ => Err(format!(
            "`{text}` is no number from 0 to {LEVEL_MAX}, and no stages such as 20s:100,10s:0"
        )),
    }
}

impl TryFrom<Written> for Profile {
    type Error = String;

    fn try_from(written: Written) -> Result<Profile, String> {
        match written {
            Written::Whole(number) => number.to_string().parse(),
            Written::Fraction(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> String {
        profile.text
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: u64 = SECOND_NS;

    #[test]
    fn stages_ramp_in_straight_lines_and_jump_in_no_time() {
        let profile: Profile = "20s:100,30s:200,10s:0".parse().expect("good");
        assert_eq!(profile.length_ns(), Some(60 * S));
        for (at_s, level) in [
            (0, 0.0),
            (10, 50.0),
            (20, 100.0),
            (35, 150.0),
            (50, 200.0),
            (55, 100.0),
            (60, 0.0),
            (99, 0.0),
        ] {
            assert!((profile.level(at_s * S) - level).abs() < 1e-6, "{at_s}");
        }
        let jump: Profile = "0s:50,10s:50,0s:80,5s:80".parse().expect("good");
        assert_eq!(jump.level(0), 50.0);
        assert_eq!(jump.level(10 * S), 80.0);
        assert_eq!(jump.level_max(), 80.0);
    }

    #[test]
    fn a_constant_rate_is_due_at_equal_distances() {
        let mut due = "1000".parse::<Profile>().expect("good").inverse();
        for n in 0..5_000_u64 {
            let at = due.when(n as f64).expect("due");
            assert!(at.abs_diff(n * 1_000_000) <= 1, "{n}: {at}");
        }
    }

    #[test]
    fn a_ramp_ends_when_its_area_is_used_up() {
        // 0 to 100 in 10 s: 500 requests; then as many down to 0.
        let mut due = "10s:100,10s:0".parse::<Profile>().expect("good").inverse();
        assert_eq!(due.when(0.0), Some(0));
        let profile: Profile = "10s:100,10s:0".parse().expect("good");
        assert_eq!(
            [0, 5, 10, 15, 20, 99].map(|at_s| profile.area(at_s * S)),
            [0.0, 125.0, 500.0, 875.0, 1000.0, 1000.0]
        );
        let half = due.when(500.0).expect("due");
        assert!(half.abs_diff(10 * S) < 1_000, "{half}");
        assert!(due.when(999.0).expect("due") < 20 * S);
        assert_eq!(due.when(1000.0), None);
        assert_eq!(due.when(5000.0), None);
    }

    #[test]
    fn a_peak_counts_that_a_jump_ends() {
        let profile: Profile = "10s:100,0s:0,5s:0".parse().expect("good");
        assert_eq!((profile.level_max(), profile.level(12 * S)), (100.0, 0.0));
    }

    #[test]
    fn what_is_no_level_is_refused() {
        for text in [
            "", "x", "-1", "1e3", "inf", "NaN", "10000001", "10s:", ":5", "10s:5,", "0s:5",
            "10s:0", "10:5", "10s:5;",
        ] {
            assert!(text.parse::<Profile>().is_err(), "{text}");
        }
    }

    proptest! {
        /// Due times rise, and the area up to the nth is n.
        #[test]
        fn the_inverse_is_one(stages in proptest::collection::vec((0_u32..20, 0_u32..2_000), 1..8)) {
            let text: Vec<_> = stages.iter().map(|(span, level)| format!("{span}s:{level}")).collect();
            let Ok(profile) = text.join(",").parse::<Profile>() else { return Ok(()) };
            let mut due = profile.inverse();
            let mut before = 0;
            for n in 0..2_000 {
                let Some(at) = due.when(f64::from(n)) else { break };
                prop_assert!(at >= before);
                prop_assert!((profile.area(at) - f64::from(n)).abs() < 1e-3, "{} at {}", n, at);
                before = at;
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9smh:,.]{0,30}") {
            let _ = text.parse::<Profile>();
        }
    }
}
