//! What manifests can have wrong: each row of `docs/bad-input.md`, seen.
//!
//! `KUBE_LOTTERY_BLESS=1` writes the page anew.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, and a panic is how a test fails"
)]

mod bad_input {
    mod files;
    mod page;
    mod rows;
    mod world;
}
