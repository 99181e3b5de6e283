//! Which threads share a process, and how many of each are at work.
//!
//! Threads of one process share a lock with most interpreters: two that compute there wait for each other while another
//! process is free. A thread that has its process for itself is idle only when nothing runs there.

/// Names a process for as long as it has threads.
#[derive(Clone, Copy)]
pub(crate) struct ProcessIndex(u32);

#[derive(Default)]
struct Process {
    threads: u32,
    idle: u32,
}

#[derive(Default)]
pub(crate) struct Processes {
    processes: Vec<Process>,
    free: Vec<ProcessIndex>,
    /// Threads beside the first of their process.
    beside: usize,
}

impl Processes {
    /// A new process, with its first thread, which is busy.
    pub(crate) fn open(&mut self) -> ProcessIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.processes.push(Process::default());
            // No more than threads: see `Dispatcher::add_to`.
            ProcessIndex((self.processes.len() - 1) as u32)
        });
        self.get(index).threads = 1;
        index
    }

    /// One more thread of it, which is busy.
    pub(crate) fn join(&mut self, index: ProcessIndex) {
        self.get(index).threads += 1;
        self.beside += 1;
    }

    /// One of its threads, which is busy, is no more.
    pub(crate) fn leave(&mut self, index: ProcessIndex) {
        let process = self.get(index);
        process.threads -= 1;
        match process.threads {
            0 => self.free.push(index),
            _ => self.beside -= 1,
        }
    }

    pub(crate) fn goes_idle(&mut self, index: ProcessIndex) {
        self.get(index).idle += 1;
    }

    pub(crate) fn goes_to_work(&mut self, index: ProcessIndex) {
        self.get(index).idle -= 1;
    }

    /// Its threads that are busy.
    pub(crate) fn running(&self, index: ProcessIndex) -> u32 {
        let process = &self.processes[index.0 as usize];
        process.threads - process.idle
    }

    /// Whether any process has several threads.
    pub(crate) fn are_shared(&self) -> bool {
        self.beside > 0
    }

    fn get(&mut self, index: ProcessIndex) -> &mut Process {
        &mut self.processes[index.0 as usize]
    }
}
