//! What a person does with an application, whichever it is; and twenty of them at once.

use std::time::Duration;

use crate::browser::Browser;
use crate::options::{DEADLINE_MS, QUEUE_WAIT_MS_MAX};
use crate::page::brief;
use crate::png;
use crate::wait_until;

/// Who are there at once.
pub const CROWD: usize = 20;
/// A page is created, then edited.
const ROUNDS: usize = 2;
const PICTURE_WIDTH: u32 = 600;
/// What [`Visitor::write`] asks for.
pub const THUMBNAIL_WIDTH: u32 = 300;
/// Some applications index what was written later, and one at a time.
const SEARCH_BOUND: Duration = Duration::from_secs(60);
/// For the server: a crowd may take its time, however busy the machine is.
pub const PATIENT: [&str; 4] = [QUEUE_WAIT_MS_MAX, "60000", DEADLINE_MS, "120000"];

/// A person who has logged in, with a browser of their own and a page of their own.
pub trait Visitor {
    fn browser(&mut self) -> &mut Browser;
    /// Whether the page was made for this person.
    fn is_mine(&self, html: &str) -> bool;
    /// Uploads a picture, under a name that nobody else uses.
    fn upload(&mut self, name: &str, picture: &[u8]);
    /// Creates this person's page, or edits it: the text, and the picture [`THUMBNAIL_WIDTH`] wide.
    fn write(&mut self, text: &str, picture: &str);
    /// This person's page.
    fn read(&mut self) -> String;
    /// Where the page has the picture in its small form.
    fn thumbnail(&self, html: &str, picture: &str) -> String;
    /// Whether a search for the word leads to this person's page.
    fn finds(&mut self, word: &str) -> bool;
}

/// Uploads, writes, reads and searches, then does so again. Every reply must be this person's: the numbers are in the words
/// and in the pictures' heights.
#[track_caller]
pub fn visit(visitor: &mut impl Visitor, number: usize) {
    let thumbnail_height = 150 + number as u32;
    for round in 1..=ROUNDS {
        let word = format!("marmalade{number}x{round}");
        let picture = format!("picture{number}x{round}.png");
        visitor.upload(&picture, &png::grey(PICTURE_WIDTH, 2 * thumbnail_height));
        let text = format!("There is {word}.");
        visitor.write(&text, &picture);
        let html = visitor.read();
        assert!(
            visitor.is_mine(&html) && html.contains(&text),
            "{number} does not see its page with {word}: {}",
            brief(&html)
        );
        let address = visitor.thumbnail(&html, &picture);
        let reply = visitor.browser().get(&address).expect(200);
        assert_eq!(reply.header("content-type"), Some("image/png"), "{address}");
        assert_eq!(png::size(&reply.body), (THUMBNAIL_WIDTH, thumbnail_height));
        wait_until(&format!("{word} is found"), SEARCH_BOUND, || {
            visitor.finds(&word)
        });
    }
}

/// Twenty people, each of whom `enter` lets in.
pub fn crowd<V: Visitor>(enter: impl Fn(usize) -> V + Sync) {
    std::thread::scope(|scope| {
        for number in 1..=CROWD {
            let enter = &enter;
            scope.spawn(move || visit(&mut enter(number), number));
        }
    });
}
