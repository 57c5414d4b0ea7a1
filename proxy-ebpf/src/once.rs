//! Two instances of a program at one hook of a device, as there are while it moves to another
//! place among the programs there: a packet that meets both is handled by the first.
//!
//! It is marked in the control block of its socket buffer, which programs of one hook hand on to
//! one another and which everything else writes over. A program in between that writes there as
//! well makes the second instance look at the packet, too: that is what would happen without marks.

use aya_ebpf::bindings::TC_ACT_UNSPEC;
use aya_ebpf::programs::TcContext;
use proxy_common::datapath::Verdict;

use crate::tc::action;

/// A hook, as it stands in the mark.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Hook {
    /// Nothing that happens to be there.
    Ingress = 0x6b6c_a55e,
    Egress = 0x6b6c_c0de,
}

/// Does `work`, unless another instance has done so.
#[inline(always)]
pub(crate) fn once(ctx: &TcContext, hook: Hook, work: impl FnOnce() -> Verdict) -> i32 {
    let skb = ctx.skb.skb;
    // SAFETY: the context of a running program. Volatile, so that each stays an access of its own,
    // which is all that the verifier admits.
    let (mark, marked_at, device) = unsafe {
        (
            (&raw const (*skb).cb[0]).read_volatile(),
            (&raw const (*skb).cb[1]).read_volatile(),
            (&raw const (*skb).ifindex).read_volatile(),
        )
    };
    if mark == hook as u32 && marked_at == device {
        return TC_ACT_UNSPEC;
    }
    let verdict = work();
    if matches!(verdict, Verdict::Rewritten | Verdict::Rejected) {
        // SAFETY: as above.
        unsafe {
            (&raw mut (*skb).cb[0]).write_volatile(hook as u32);
            (&raw mut (*skb).cb[1]).write_volatile(device);
        }
    }
    action(ctx, verdict)
}
