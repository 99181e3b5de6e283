//! The policy of this crate, driven as the server drives it.

use baton_dispatch::autoscale::{
    Action, CpuCounters, Decision, DecisionLog, IdleThread, LOOK_MS, Memory, Meter, ScaleLimits,
    Seen, StartCost, decide,
};

use crate::scaler::{Order, Scaler, Site, Waiting};
use crate::time::{MS, Time};

pub struct Ours {
    pub limits: ScaleLimits,
    /// Memory in all, and what a thread takes.
    pub memory_bytes: Option<(u64, u64)>,
    pub log: DecisionLog,
    /// Whether it is told what threads do.
    pub knows_work: bool,
    meter: Meter,
    looked: Time,
    next: Option<Time>,
    /// Requests waited at the last look.
    is_watching: bool,
}

impl Ours {
    pub fn new(limits: ScaleLimits) -> Self {
        Self {
            limits,
            memory_bytes: None,
            log: DecisionLog::default(),
            knows_work: true,
            meter: Meter::new(),
            looked: 0,
            next: Some(0),
            is_watching: false,
        }
    }

    fn look(&mut self, site: &mut dyn Site, now_ms: u64) -> Decision {
        let glance = site.glance();
        self.is_watching = glance.waiting > 0;
        let starting_since_ms: Vec<_> = site.starting_since().iter().map(|at| at / MS).collect();
        let work = self.knows_work.then(|| site.work(&glance));
        let (cpu_ms, sleep_ms) = site.start_ms();
        let seen = Seen {
            glance,
            idle: site
                .idle_since()
                .into_iter()
                .map(|(id, _)| IdleThread { id, by_hand: false })
                .collect(),
            by_hand: 0,
            starting_since_ms: &starting_since_ms,
            start_not_before_ms: 0,
            work,
            cpu: CpuCounters {
                cores: site.cores(),
                left_us: site.left_us(),
                ours_us: site.ours_us(),
            },
            start: Some(StartCost { cpu_ms, sleep_ms }),
            memory: self.memory_bytes.map(|(total_bytes, thread_bytes)| Memory {
                total_bytes,
                left_bytes: total_bytes.saturating_sub(glance.threads as u64 * thread_bytes),
                thread_bytes,
            }),
        };
        let observation = self.meter.observe(seen, self.limits.idle_ms_max, now_ms);
        decide(&observation, &self.limits, now_ms)
    }
}

impl Scaler for Ours {
    fn threads_first(&self) -> u32 {
        self.limits.threads_min
    }

    fn replaces(&self) -> bool {
        false
    }

    fn queued(&mut self, _: Waiting, now: Time) {
        if !self.is_watching {
            self.is_watching = true;
            self.next = Some(now.max(self.looked + LOOK_MS * MS));
        }
    }

    fn next(&self) -> Option<Time> {
        self.next
    }

    fn act(&mut self, site: &mut dyn Site, now: Time) -> Vec<Order> {
        let decision = self.look(site, now / MS);
        self.log.note(&decision, now / MS);
        self.looked = now;
        self.next = decision.look_again_ms.map(|at_ms| at_ms * MS);
        assert!(self.next.is_none_or(|next| next > now), "{decision}");
        match decision.action {
            Action::Start(count) => vec![Order::Start(count)],
            Action::Stop { with, .. } => {
                self.meter.stopped(with.len());
                vec![Order::Stop(with)]
            }
            Action::Hold => Vec::new(),
        }
    }
}
