//! A machine in virtual time, on which policies of scaling are judged.
//!
//! Everything is made up but the dispatcher and the policy, which are the product's. Nothing is left to chance: the same
//! load gives the same figures everywhere. `cargo test -p baton-dispatch --test simulation -- --ignored --nocapture`
//! prints the table that `ARCHITECTURE.md` has.

mod baseline;
mod behaviour;
mod cores;
mod load;
mod ours;
mod random;
mod regret;
mod scaler;
mod time;
mod world;
