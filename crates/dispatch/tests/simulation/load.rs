//! Loads: how many clients there are over time, and what their requests do.

use crate::random::Random;
use crate::time::{MS, S, Time, US};

/// What a request does next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Waits for somebody else.
    Sleep(Time),
    Compute(Time),
}

/// What a request does, one thing after the other.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    steps: [Option<Step>; 5],
    len: usize,
    at: usize,
}

impl Steps {
    fn of<const N: usize>(steps: [Step; N]) -> Self {
        let mut all = Self::default();
        for step in steps {
            all.push(step);
        }
        all
    }

    fn push(&mut self, step: Step) {
        self.steps[self.len] = Some(step);
        self.len += 1;
    }

    /// A start: it waits for something, and computes.
    pub fn of_start(sleep: Time, compute: Time) -> Self {
        Self::of([Step::Sleep(sleep), Step::Compute(compute)])
    }
}

impl Iterator for Steps {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let step = *self.steps.get(self.at)?;
        self.at += 1;
        step
    }
}

pub type Script = fn(&mut Random, Time) -> Steps;

/// Clients come and go evenly until each of these times, up or down to each of these numbers.
pub type Stages = &'static [(Time, u32)];

#[derive(Clone)]
pub struct Load {
    pub name: &'static str,
    pub stages: Stages,
    pub script: Script,
    /// How long a client waits before its next request: evenly from the first to the second.
    pub think: (Time, Time),
    pub deadline: Time,
}

impl Load {
    pub fn end(&self) -> Time {
        self.stages.iter().map(|(length, _)| length).sum()
    }

    pub fn clients_max(&self) -> u32 {
        self.stages
            .iter()
            .map(|(_, clients)| *clients)
            .max()
            .unwrap_or(0)
    }

    pub fn clients(&self, now: Time) -> u32 {
        let (mut begin, mut from) = (0, 0);
        for (length, to) in self.stages {
            if now < begin + length {
                let passed = (now - begin) as i64;
                let change = (i64::from(*to) - i64::from(from)) * passed / *length as i64;
                return (i64::from(from) + change) as u32;
            }
            (begin, from) = (begin + length, *to);
        }
        from
    }
}

/// What PHP computes for a request whatever the script. Ten times what it takes for an empty script on a warm
/// process: more requests would only make the simulation long.
const REQUEST: Time = 100 * US;
/// One addition in a loop, and one line of output.
const ADDITION_NS: Time = 10;
const LINE: Time = 2 * US;
const DEADLINE: Time = 60 * S;
const NONE: (Time, Time) = (0, 0);

/// The application's own computing.
fn work(random: &mut Random, additions_max: u64, lines_max: u64) -> Time {
    let additions = random.range(1, additions_max);
    let lines = random.range(1, lines_max);
    additions * ADDITION_NS + lines * LINE
}

fn hello(_: &mut Random, _: Time) -> Steps {
    Steps::of([Step::Compute(REQUEST)])
}

fn database(random: &mut Random, _: Time) -> Steps {
    let mut steps = Steps::default();
    let mut others = REQUEST;
    for _ in 0..random.range(1, 2) {
        steps.push(Step::Sleep(random.range(MS, 10 * MS)));
        steps.push(Step::Compute(others + work(random, 30_000, 40)));
        others = 0;
    }
    steps
}

fn external_api(random: &mut Random, _: Time) -> Steps {
    Steps::of([
        Step::Sleep(random.range(10 * MS, 150 * MS)),
        Step::Compute(REQUEST + work(random, 30_000, 40)),
    ])
}

fn computation(random: &mut Random, _: Time) -> Steps {
    Steps::of([
        Step::Sleep(random.range(0, 2 * MS)),
        Step::Compute(REQUEST + work(random, 1_000_000, 500)),
    ])
}

fn hanging(random: &mut Random, _: Time) -> Steps {
    let sleep = match random.percent(2) {
        true => 15 * S,
        false => 5 * MS,
    };
    Steps::of([
        Step::Sleep(sleep),
        Step::Compute(REQUEST + 10_000 * ADDITION_NS + 100 * LINE),
    ])
}

fn timeouts(_: &mut Random, now: Time) -> Steps {
    let is_down = (now / (10 * S)) % 2 == 1;
    Steps::of([
        Step::Sleep(if is_down { 50 * S } else { 5 * MS }),
        Step::Compute(REQUEST + 30_000 * ADDITION_NS + 100 * LINE),
    ])
}

fn leak(random: &mut Random, now: Time) -> Steps {
    let sleep = random.range(MS, 10 * MS);
    Steps::of([
        Step::Sleep(sleep + sleep * (now / MS) / 10_000),
        Step::Compute(REQUEST + work(random, 30_000, 40)),
    ])
}

pub const HELLO: Load = Load {
    name: "hello",
    stages: &[(5 * S, 100), (20 * S, 400), (5 * S, 0)],
    script: hello,
    think: NONE,
    deadline: DEADLINE,
};

pub const DATABASE: Load = Load {
    name: "database",
    stages: &[(20 * S, 100), (30 * S, 200), (10 * S, 0)],
    script: database,
    think: NONE,
    deadline: DEADLINE,
};

pub const EXTERNAL_API: Load = Load {
    name: "external API",
    stages: &[(20 * S, 150), (20 * S, 1000), (10 * S, 0)],
    script: external_api,
    think: NONE,
    deadline: DEADLINE,
};

pub const COMPUTATION: Load = Load {
    name: "computation",
    stages: &[(20 * S, 80), (20 * S, 150), (5 * S, 0)],
    script: computation,
    think: NONE,
    deadline: DEADLINE,
};

pub const HANGING: Load = Load {
    name: "hanging",
    stages: &[(20 * S, 100), (20 * S, 500), (20 * S, 0)],
    script: hanging,
    think: NONE,
    deadline: DEADLINE,
};

pub const TIMEOUTS: Load = Load {
    name: "timeouts",
    stages: &[(20 * S, 100), (20 * S, 500), (20 * S, 0)],
    script: timeouts,
    think: NONE,
    deadline: 5 * S,
};

pub const SIX: [Load; 6] = [
    HELLO,
    DATABASE,
    EXTERNAL_API,
    COMPUTATION,
    HANGING,
    TIMEOUTS,
];

/// From 1 client to 500, after [`STEP_AT`].
pub const STEP: Load = Load {
    name: "step",
    stages: &[(1, 1), (STEP_AT - 1, 1), (1, 500), (10 * S - 1, 500)],
    script: database,
    think: NONE,
    deadline: DEADLINE,
};
pub const STEP_AT: Time = 5 * S;

/// The same, for requests that each wait for others for 80 ms in the mean.
pub const SLEEPY_STEP: Load = Load {
    name: "sleepy step",
    script: external_api,
    ..STEP
};

pub const SAWTOOTH: Load = Load {
    name: "sawtooth",
    stages: &[
        (15 * S, 200),
        (5 * S, 0),
        (15 * S, 200),
        (5 * S, 0),
        (15 * S, 200),
        (5 * S, 0),
    ],
    script: database,
    think: NONE,
    deadline: DEADLINE,
};

/// The same for five minutes, so that the busy times are as far apart as idle threads are kept for, and further.
pub const WAVES: Load = Load {
    name: "waves",
    stages: &{
        let mut stages = [(5 * S, 0); 30];
        let mut wave = 0;
        while wave < stages.len() {
            stages[wave] = (15 * S, 200);
            wave += 2;
        }
        stages
    },
    ..SAWTOOTH
};

/// Service takes twice as long after 10 s, and ten times as long at the end.
pub const LEAK: Load = Load {
    name: "leak",
    stages: &[(5 * S, 40), (85 * S, 40)],
    script: leak,
    think: NONE,
    deadline: DEADLINE,
};

/// A busy quarter of a minute, then hardly anybody for six minutes.
pub const EVENING: Load = Load {
    name: "evening",
    stages: &[(15 * S, 200), (S, 1), (360 * S, 1)],
    script: database,
    think: NONE,
    deadline: DEADLINE,
};

/// People who read for a while: 300 requests a second, come what may, for which a few threads are busy at a time.
pub const VISITORS: Load = Load {
    name: "visitors",
    stages: &[(10 * S, 600), (290 * S, 600)],
    script: database,
    think: (S, 3 * S),
    deadline: DEADLINE,
};

/// The hanging load, but with 1000 clients.
pub const HANGING_1000: Load = Load {
    name: "hanging, 1000 clients",
    stages: &[(20 * S, 1000), (40 * S, 1000)],
    script: hanging,
    think: NONE,
    deadline: DEADLINE,
};
