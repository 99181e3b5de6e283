//! The front without applications: as a floor of what the others can reach.

use baton_server::{ConnId, Io, Request, Service};

use crate::reply;

pub struct Gateway;

impl Service for Gateway {
    type Message = ();

    fn request(&mut self, io: &mut Io, conn: ConnId, _: Request<'_>) {
        let headers = reply::headers(b"nothing.").into_iter();
        io.respond(conn, 200, None, headers, reply::BODY);
    }
}
