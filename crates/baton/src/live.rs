//! The applications that are served now. The set of them may change while the server runs.

use std::sync::{Arc, Mutex, PoisonError};

use crate::gateway::Sites;

pub struct Live {
    sites: Mutex<Arc<Sites>>,
}

impl Live {
    pub fn new(sites: Arc<Sites>) -> Self {
        Self {
            sites: Mutex::new(sites),
        }
    }

    pub fn sites(&self) -> Arc<Sites> {
        self.sites
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
