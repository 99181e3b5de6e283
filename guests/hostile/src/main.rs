//! Test only: an app whose processes do to the front whatever they can. The front takes it for `baton-php`.
//!
//! Like every guest it is a zygote that forks app processes; unlike the others it keeps all descriptors that it gets
//! and maps the memory once more by itself. A process is born honest or with one misdeed, by its number and
//! `BATON_SEED`. Honest ones answer with the token that they were asked for. The others never repeat a token: whoever gets
//! one that is not its own got it by the front's fault. Once there is a file `peace` in the app's folder, all that are
//! born are honest.
//!
//! [`zygote`] forks, [`process`] is what a forked process has and its honest work, [`misdeeds`] the rest.

mod misdeeds;
mod process;
mod random;
mod raw;
mod zygote;

fn main() {
    if let Err(error) = zygote::run() {
        eprintln!("baton-hostile: {error}");
        std::process::exit(1);
    }
}
