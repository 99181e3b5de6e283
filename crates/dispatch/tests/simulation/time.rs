//! Virtual time, in nanoseconds.

pub type Time = u64;

pub const US: Time = 1_000;
pub const MS: Time = 1_000 * US;
pub const S: Time = 1_000 * MS;
