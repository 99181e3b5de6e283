//! Those who ask.

use baton_dispatch::{Submitted, Ticket};

use super::{Event, World};
use crate::random::Random;
use crate::scaler::{Scaler, Waiting};
use crate::time::{MS, Time, US};

/// From an answer until the same client's next request is there.
const ROUND_TRIP: Time = 100 * US;

pub struct Client {
    pub random: Random,
    /// Counts its requests.
    pub number: u64,
    is_sent: bool,
    pub ticket: Option<Ticket>,
    pub thread: Option<usize>,
}

impl Client {
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            number: 0,
            is_sent: false,
            ticket: None,
            thread: None,
        }
    }
}

impl World<'_> {
    /// So many clients should be there from now on.
    pub(super) fn admit(&mut self, count: usize, scaler: &mut dyn Scaler) {
        let before = std::mem::replace(&mut self.clients_wanted, count);
        for client in before..count {
            if !self.clients[client].is_sent {
                self.clients[client].is_sent = true;
                self.send(client, scaler);
            }
        }
    }

    pub(super) fn send(&mut self, client: usize, scaler: &mut dyn Scaler) {
        if client >= self.clients_wanted {
            self.clients[client].is_sent = false;
            return;
        }
        self.clients[client].number += 1;
        let request = (client, self.clients[client].number);
        self.deadlines
            .push_back((self.now + self.load.deadline, request));
        match self.dispatcher.submit(client, 0, self.now / MS) {
            Submitted::Handoff(handoff) => self.take(handoff, scaler),
            Submitted::Queued(ticket) => {
                self.clients[client].ticket = Some(ticket);
                scaler.queued(request, self.now);
            }
            Submitted::Refused(client) => self.refuse(client),
        }
    }

    pub(super) fn answered(&mut self, client: usize) {
        self.clients[client].thread = None;
        self.clients[client].ticket = None;
        let (least, most) = self.load.think;
        let think = self.clients[client].random.range(least, most);
        self.schedule(self.now + ROUND_TRIP + think, Event::Send(client));
    }

    pub(super) fn refuse(&mut self, client: usize) {
        self.outcome.refused += 1;
        self.answered(client);
    }

    pub(super) fn too_late(&mut self, (client, number): Waiting, scaler: &mut dyn Scaler) {
        if self.clients[client].number != number {
            return;
        }
        let (thread, ticket) = (self.clients[client].thread, self.clients[client].ticket);
        match (thread, ticket) {
            (Some(thread), _) => {
                self.kill(thread);
                if scaler.replaces() {
                    self.start(1);
                }
            }
            (None, Some(ticket)) if self.dispatcher.cancel(ticket).is_some() => {}
            _ => return,
        }
        self.outcome.timed_out += 1;
        self.answered(client);
    }
}
