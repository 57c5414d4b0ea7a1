//! The slow parts as global functions: see [`proxy_common::datapath::work`].
//!
//! The kernel verifies each of them once, with nothing known but its own code, so that a caller
//! costs no more for it than a call.

use proxy_common::abi::{V4, V6};
use proxy_common::datapath::verdict::Step;
use proxy_common::datapath::work::{self, Part};

use crate::scratch;
use crate::tables::Maps;

/// Has the sweeper's part: its work is not that of packets.
macro_rules! sweep {
    ($module:ident, $family:ty, $symbol:literal) => {
        pub(crate) mod $module {
            use super::*;

            #[unsafe(export_name = $symbol)]
            #[inline(never)]
            pub(crate) extern "C" fn sweep() -> u32 {
                let Some(work) = scratch::spare::<$family>() else {
                    return Step::NONE.word();
                };
                work::run(&mut Maps, Part::Sweep, work).word()
            }
        }
    };
}

sweep!(sweep4, V4, "sweep4");
sweep!(sweep6, V6, "sweep6");

macro_rules! parts {
    ($module:ident, $family:ty, $($name:ident $symbol:literal $part:ident,)*) => {
        pub(crate) mod $module {
            use super::*;

            $(
                #[unsafe(export_name = $symbol)]
                #[inline(never)]
                pub(crate) extern "C" fn $name() -> u32 {
                    let Some(work) = scratch::work::<$family>() else {
                        return Step::PASS.word();
                    };
                    work::run(&mut Maps, Part::$part, work).word()
                }
            )*
        }
    };
}

parts!(
    v4, V4,
    miss "miss4" Miss,
    whole "whole4" Whole,
    renew "renew4" Renew,
    note "note4" Note,
    repair_reply "repair_reply4" RepairReply,
    repair_forward "repair_forward4" RepairForward,
    repair_hairpin "repair_hairpin4" RepairHairpin,
    probe "probe4" Probe,
    choose "choose4" Choose,
    recall "recall4" Recall,
    remember "remember4" Remember,
    claim "claim4" Claim,
    claim_half "claim_half4" ClaimHalf,
    enter "enter4" Enter,
    leaves "leaves4" Leaves,
    arrives "arrives4" Arrives,
    goes_on "goes_on4" GoesOn,
    answers "answers4" Answers,
    direct "direct4" Direct,
    note_direct "note_direct4" NoteDirect,
    note_half "note_half4" NoteHalf,
    note_fragment "note_fragment4" NoteFragment,
    quote "quote4" Quote,
    report "report4" Report,
    count_out "count_out4" CountOut,
);
parts!(
    v6, V6,
    miss "miss6" Miss,
    whole "whole6" Whole,
    renew "renew6" Renew,
    note "note6" Note,
    repair_reply "repair_reply6" RepairReply,
    repair_forward "repair_forward6" RepairForward,
    repair_hairpin "repair_hairpin6" RepairHairpin,
    probe "probe6" Probe,
    choose "choose6" Choose,
    recall "recall6" Recall,
    remember "remember6" Remember,
    claim "claim6" Claim,
    claim_half "claim_half6" ClaimHalf,
    enter "enter6" Enter,
    leaves "leaves6" Leaves,
    arrives "arrives6" Arrives,
    goes_on "goes_on6" GoesOn,
    answers "answers6" Answers,
    direct "direct6" Direct,
    note_direct "note_direct6" NoteDirect,
    note_half "note_half6" NoteHalf,
    note_fragment "note_fragment6" NoteFragment,
    quote "quote6" Quote,
    report "report6" Report,
    count_out "count_out6" CountOut,
);
