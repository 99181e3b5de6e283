//! What is served now. A reload puts other sites in their place.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    /// To be held for a moment only: while somebody has them, what they had open stays open.
    pub fn sites(&self) -> Arc<Sites> {
        self.lock().clone()
    }

    /// I/O threads go by it when they are told so.
    pub fn replace(&self, sites: Arc<Sites>) {
        let before = std::mem::replace(&mut *self.lock(), sites);
        drop(before);
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Sites>> {
        // Only ever replaced as a whole.
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
