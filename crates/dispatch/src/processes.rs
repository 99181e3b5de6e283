//! Which threads share a process, how many of each are at work, and which processes leave.
//!
//! Threads of one process share a lock with most interpreters: two that compute there wait for each other while another
//! process is free. A thread that has its process for itself is idle only when nothing runs there.
//!
//! A process leaves as a whole, or it would keep its memory for the sake of one thread: each of its threads goes when it is
//! free, and none of them counts any more.

/// Names a process for as long as it has threads.
#[derive(Clone, Copy)]
pub(crate) struct ProcessIndex(u32);

impl ProcessIndex {
    /// Less than [`Processes::slots`].
    pub(crate) fn slot(self) -> usize {
        self.0 as usize
    }
}

#[derive(Default)]
struct Process {
    threads: u32,
    idle: u32,
    is_leaving: bool,
}

#[derive(Default)]
pub(crate) struct Processes {
    processes: Vec<Process>,
    free: Vec<ProcessIndex>,
    /// Threads beside the first of their process.
    beside: usize,
    /// Threads of processes that leave.
    leaving: usize,
}

impl Processes {
    /// A new process, with its first thread, which is busy.
    pub(crate) fn open(&mut self) -> ProcessIndex {
        let index = self.free.pop().unwrap_or_else(|| {
            self.processes.push(Process::default());
            // No more than threads: see `Dispatcher::add_to`.
            ProcessIndex((self.processes.len() - 1) as u32)
        });
        *self.get(index) = Process {
            threads: 1,
            ..Process::default()
        };
        index
    }

    /// One more thread of it, which is busy.
    pub(crate) fn join(&mut self, index: ProcessIndex) {
        let process = self.get(index);
        process.threads += 1;
        let is_leaving = process.is_leaving;
        self.beside += 1;
        self.leaving += usize::from(is_leaving);
    }

    /// One of its threads, which is busy, is no more.
    pub(crate) fn lose(&mut self, index: ProcessIndex) {
        let process = self.get(index);
        process.threads -= 1;
        let (threads, is_leaving) = (process.threads, process.is_leaving);
        self.leaving -= usize::from(is_leaving);
        match threads {
            0 => self.free.push(index),
            _ => self.beside -= 1,
        }
    }

    /// It leaves from now on, if it did not already.
    pub(crate) fn leave(&mut self, index: ProcessIndex) {
        let process = self.get(index);
        if !process.is_leaving {
            process.is_leaving = true;
            let threads = process.threads as usize;
            self.leaving += threads;
        }
    }

    pub(crate) fn is_leaving(&self, index: ProcessIndex) -> bool {
        self.at(index).is_leaving
    }

    /// Threads of all processes that leave.
    pub(crate) fn leaving(&self) -> usize {
        self.leaving
    }

    pub(crate) fn goes_idle(&mut self, index: ProcessIndex) {
        self.get(index).idle += 1;
    }

    pub(crate) fn goes_to_work(&mut self, index: ProcessIndex) {
        self.get(index).idle -= 1;
    }

    /// Its threads that are busy.
    pub(crate) fn running(&self, index: ProcessIndex) -> u32 {
        let process = self.at(index);
        process.threads - process.idle
    }

    pub(crate) fn threads(&self, index: ProcessIndex) -> usize {
        self.at(index).threads as usize
    }

    pub(crate) fn slots(&self) -> usize {
        self.processes.len()
    }

    /// Whether any process has several threads.
    pub(crate) fn are_shared(&self) -> bool {
        self.beside > 0
    }

    fn at(&self, index: ProcessIndex) -> &Process {
        &self.processes[index.slot()]
    }

    fn get(&mut self, index: ProcessIndex) -> &mut Process {
        &mut self.processes[index.slot()]
    }
}
