//! How much and how long: the options that say so, checked, with their defaults.

use std::fmt::Display;
use std::thread::available_parallelism;

use serde::Serialize;

use crate::options::Shape;
use crate::profile::Profile;
use crate::span::{SECOND_NS, SPAN_S_MAX, Span};

const CONNECTIONS_MAX: f64 = 1_000_000.0;
const THREADS_MAX: usize = 256;
const PIPELINE_MAX: usize = 1_024;
const REQUESTS_MAX: u64 = 1_000_000_000_000;
const TIMEOUT_MIN: Span = Span::from_ns(1_000_000);
const TIMEOUT_MAX: Span = Span::seconds(24 * 3600);

/// See [`Shape`] for what each is.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    pub connections: Profile,
    /// None: closed loop.
    pub rate: Option<Profile>,
    pub threads: usize,
    /// None: until all requests are sent.
    pub duration: Option<Span>,
    pub requests: Option<u64>,
    pub pipeline: usize,
    pub keep_alive: bool,
    pub warm_up: Span,
    pub connect_timeout: Span,
    pub timeout: Span,
    pub drain: Span,
    pub seed: u64,
}

impl Load {
    pub fn new(shape: Shape) -> Result<Load, String> {
        let timeout = shape.timeout.unwrap_or(Span::seconds(10));
        let load = Load {
            duration: duration(&shape),
            threads: shape.threads.unwrap_or_else(|| threads(&shape)),
            connections: shape.connections.unwrap_or_else(connections),
            rate: shape.rate,
            requests: shape.requests,
            pipeline: shape.pipeline.unwrap_or(1),
            keep_alive: shape.keep_alive.unwrap_or(true),
            warm_up: shape.warm_up.unwrap_or(Span::seconds(0)),
            connect_timeout: shape.connect_timeout.unwrap_or(Span::seconds(5)),
            timeout,
            drain: shape.drain.unwrap_or(timeout),
            seed: shape.seed.unwrap_or(1),
        };
        load.check()?;
        Ok(load)
    }

    fn check(&self) -> Result<(), String> {
        let connections = self.connections.level_max();
        within("connections", connections, 1.0, CONNECTIONS_MAX)?;
        within("threads", self.threads, 1, THREADS_MAX)?;
        if self.threads as f64 > connections {
            return Err(format!(
                "threads: {} are more than there are connections",
                self.threads
            ));
        }
        if self
            .rate
            .as_ref()
            .is_some_and(|rate| rate.level_max() <= 0.0)
        {
            return Err("rate: more than 0 requests per second are needed".into());
        }
        within("pipeline", self.pipeline, 1, PIPELINE_MAX)?;
        if self.pipeline > 1 && !self.keep_alive {
            return Err("pipeline: needs keep-alive".into());
        }
        if let Some(requests) = self.requests {
            within("requests", requests, 1, REQUESTS_MAX)?;
        }
        match self.duration {
            Some(duration) if duration.ns() == 0 => return Err("duration: 0s is too short".into()),
            Some(duration) if self.warm_up >= duration => {
                return Err(format!(
                    "warm-up: {} leaves nothing to measure",
                    self.warm_up
                ));
            }
            _ => {}
        }
        within(
            "connect-timeout",
            self.connect_timeout,
            TIMEOUT_MIN,
            TIMEOUT_MAX,
        )?;
        within("timeout", self.timeout, TIMEOUT_MIN, TIMEOUT_MAX)
    }

    /// When sending ends at the latest, since the start of the load. None: when all requests are sent.
    pub fn sending_ns(&self) -> Option<u64> {
        let duration_ns = self.duration.map(Span::ns);
        let (Some(rate), Some(requests)) = (&self.rate, self.requests) else {
            return duration_ns;
        };
        let last_ns = rate
            .inverse()
            .when((requests - 1) as f64)
            .or(rate.length_ns());
        // What is late by then for want of a connection is not sent.
        let counted_ns = last_ns
            .unwrap_or(SPAN_S_MAX * SECOND_NS)
            .saturating_add(self.drain.ns());
        Some(duration_ns.map_or(counted_ns, |duration_ns| duration_ns.min(counted_ns)))
    }

    /// The most connections that are open at once.
    pub fn connections_max(&self) -> usize {
        self.connections.level_max().round() as usize
    }
}

fn connections() -> Profile {
    Profile::constant(50)
}

/// Half of the cores: the server may be on the same machine.
fn threads(shape: &Shape) -> usize {
    let cores = available_parallelism().map_or(1, |cores| cores.get());
    let connections = shape.connections.as_ref().map_or(50.0, Profile::level_max);
    (cores / 2).clamp(1, 8).min(connections as usize).max(1)
}

fn duration(shape: &Shape) -> Option<Span> {
    let of = |profile: &Option<Profile>| profile.as_ref().and_then(Profile::length_ns);
    let staged = of(&shape.connections)
        .max(of(&shape.rate))
        .map(Span::from_ns);
    match shape.duration.or(staged) {
        None if shape.requests.is_none() => Some(Span::seconds(10)),
        given => given,
    }
}

fn within<T: PartialOrd + Display>(name: &str, value: T, least: T, most: T) -> Result<(), String> {
    match value >= least && value <= most {
        true => Ok(()),
        false => Err(format!("{name}: {value} is not within {least} to {most}")),
    }
}
