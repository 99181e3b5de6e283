//! A table of cases: all of them run, and then the failures are shown together.

use std::panic::{AssertUnwindSafe, catch_unwind};

#[derive(Default)]
pub struct Cases {
    run: usize,
    failed: Vec<String>,
}

impl Cases {
    pub fn new() -> Cases {
        Cases::default()
    }

    /// Runs one case; a panic in it is its failure, and the other cases still run.
    pub fn case(&mut self, name: &str, body: impl FnOnce()) {
        self.run += 1;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let message = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                .unwrap_or_else(|| "panicked".to_owned());
            self.failed.push(format!("{name}: {message}"));
        }
    }

    #[track_caller]
    pub fn finish(self) {
        assert!(
            self.failed.is_empty(),
            "{} of {} cases failed:\n  - {}",
            self.failed.len(),
            self.run,
            self.failed.join("\n  - ")
        );
    }
}
