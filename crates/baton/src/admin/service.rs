//! Takes the questions. What needs nothing but a lock is answered at once, the rest by the desk.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};

use baton_server::{ConnId, Io, Request, Service};

use super::Inside;
use super::call::{self, Call};
use super::reply::Reply;
use super::status;
use super::token::Token;

/// Questions that may wait for the desk.
pub const WAITING_MAX: usize = 16;

pub struct Question {
    pub conn: ConnId,
    pub call: Call,
}

/// The desk's answer.
pub struct Answer {
    pub conn: ConnId,
    pub reply: Reply,
}

pub struct AdminService {
    inside: Arc<Inside>,
    token: Option<Arc<Token>>,
    questions: SyncSender<Question>,
}

impl AdminService {
    pub fn new(
        inside: Arc<Inside>,
        token: Option<Arc<Token>>,
        questions: SyncSender<Question>,
    ) -> Self {
        Self {
            inside,
            token,
            questions,
        }
    }

    /// `None`: the desk answers.
    fn answer(&self, conn: ConnId, request: &Request<'_>) -> Option<Reply> {
        if let Some(token) = &self.token
            && !token.is_shown_by(request.head.header("authorization"))
        {
            let detail =
                "The header Authorization: Bearer TOKEN is missing, or the token is another.";
            let challenge = "Bearer realm=\"baton\"";
            return Some(Reply::problem(401, detail).with("WWW-Authenticate", challenge));
        }
        let head = request.head;
        match call::parse(head.method, head.path, head.query) {
            Err(reply) => Some(reply),
            Ok(Call::Health) => Some(status::health()),
            Ok(Call::Ready { app }) => Some(status::readiness(&self.inside, app.as_deref())),
            Ok(call) => match self.questions.try_send(Question { conn, call }) {
                Ok(()) => None,
                Err(TrySendError::Full(_)) => {
                    let detail = "Too many questions wait for an answer.";
                    Some(Reply::problem(503, detail).with("Retry-After", "1"))
                }
                Err(TrySendError::Disconnected(_)) => {
                    let detail = "The thread that answers has ended; the log says why.";
                    Some(Reply::problem(500, detail))
                }
            },
        }
    }
}

impl Service for AdminService {
    type Message = Answer;

    fn request(&mut self, io: &mut Io, conn: ConnId, request: Request<'_>) {
        if let Some(reply) = self.answer(conn, &request) {
            reply.send(io, conn);
        }
    }

    fn message(&mut self, io: &mut Io, answer: Answer) {
        // Whoever asked may have left: then this does nothing.
        answer.reply.send(io, answer.conn);
    }
}
