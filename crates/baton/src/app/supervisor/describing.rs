//! What the supervisor tells of its pool when it is asked.

use std::sync::Arc;

use super::super::process::Process;
use super::{Supervisor, ZygoteState};

/// A pool as its supervisor sees it at one moment.
pub struct PoolState {
    pub zygote: ZygotePhase,
    /// A restart is under way, or asked for.
    pub is_restarting: bool,
    pub members: Vec<MemberState>,
    /// Processes that were asked for and have not said hello: their numbers, and since when.
    pub asked: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZygotePhase {
    /// None is there; the next one comes later, or when there is a request.
    Waiting,
    Loading,
    Ready,
}

pub struct MemberState {
    pub process: Arc<Process>,
    /// Since it said hello.
    pub since_ms: u64,
    /// It takes no requests yet.
    pub boots: bool,
    /// The app was restarted since: it makes way for a new one when it is free.
    pub is_older: bool,
}

impl Supervisor {
    pub(super) fn describe(&self) -> PoolState {
        let zygote = match &self.current.zygote {
            ZygoteState::Wanted { .. } => ZygotePhase::Waiting,
            ZygoteState::Loading { .. } => ZygotePhase::Loading,
            ZygoteState::Ready(_) => ZygotePhase::Ready,
        };
        let members = self.members.values().map(|member| MemberState {
            process: member.process.clone(),
            since_ms: member.since_ms,
            boots: member.boots(),
            is_older: member.generation < self.current.generation,
        });
        let asked = self.nascent.iter();
        PoolState {
            zygote,
            is_restarting: self.is_restarting() || self.is_restart_wanted(),
            members: members.collect(),
            asked: asked
                .map(|(number, asked)| (*number, asked.since_ms))
                .collect(),
        }
    }
}
