//! A socket buffer as the data path wants to see it.

use core::mem::{MaybeUninit, size_of};
use core::ptr::from_ref;

use aya_ebpf::bindings::{
    __sk_buff, BPF_FIB_LKUP_RET_FRAG_NEEDED, BPF_FIB_LKUP_RET_NO_NEIGH, BPF_FIB_LKUP_RET_SUCCESS,
    bpf_fib_lookup,
};
use aya_ebpf::helpers::generated::{
    bpf_csum_diff, bpf_fib_lookup as lookup, bpf_l3_csum_replace, bpf_l4_csum_replace,
    bpf_skb_load_bytes, bpf_skb_pull_data, bpf_skb_store_bytes,
};
use aya_ebpf::programs::TcContext;
use bytemuck::Pod;
use proxy_common::datapath::Packet;
use proxy_common::datapath::extension::Chain;
use proxy_common::datapath::packet::{NextHop, Route};
use proxy_common::net::checksum::Difference;
use proxy_common::net::{Address, Ip4, Ip6, Mac, Port, Proto};

use crate::{crc, extension, scratch};

/// `pkt_type` of a frame that is addressed to somebody else.
const OTHER_HOST: u32 = 3;
const VLAN_ID: u32 = 0x0fff;

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// Negative results of a helper.
const ERRORS: u32 = 1 << 31;

/// `gso_size` of a packet that is cut where its fragments end (Linux 4.8).
const GSO_BY_FRAGS: u32 = 0xffff;

const RECOMPUTE_SUM: u64 = 1;
const INVALIDATE_HASH: u64 = 1 << 1;
const PSEUDO_HEADER: u64 = 1 << 4;
/// Zero means "no checksum" and stays; a computed zero becomes 0xffff.
const ZERO_IS_NONE: u64 = 1 << 5;

/// A socket buffer at a tc hook.
pub(crate) struct SkbPacket {
    skb: *mut __sk_buff,
    protocol: u16,
    vlan: u32,
    kind: u32,
    device: u32,
}

impl SkbPacket {
    /// Every context field is read here, once: two branches that read two fields are merged by
    /// LLVM into an access that the verifier refuses.
    #[inline(always)]
    pub(crate) fn new(ctx: &TcContext) -> Self {
        let skb = ctx.skb.skb;
        // SAFETY: the context of a running program.
        let (protocol, present, tci, kind, device) = unsafe {
            (
                (*skb).protocol,
                (*skb).vlan_present,
                (*skb).vlan_tci,
                (*skb).pkt_type,
                (*skb).ifindex,
            )
        };
        Self {
            skb,
            protocol: u16::from_be(protocol as u16),
            // A priority tag (id 0) names no other network.
            vlan: if present == 0 { 0 } else { tci & VLAN_ID },
            kind,
            device,
        }
    }

    /// Asks for the way of a packet that comes in by `device`; what `params` says beside that is
    /// the caller's.
    #[inline(always)]
    fn look_up(&mut self, device: u32, params: &mut bpf_fib_lookup) -> u32 {
        params.ifindex = device;
        // No length: the kernel takes the packet's own. No type of service, no flow label.
        params.__bindgen_anon_1.tot_len = 0;
        params.__bindgen_anon_2.flowinfo = 0;
        params.sport = 0;
        params.dport = 0;
        let len = size_of::<bpf_fib_lookup>() as i32;
        // SAFETY: `params` is `len` bytes long.
        let result = unsafe { lookup(self.skb.cast(), params, len, 0) };
        result as u32
    }

    /// Whether the packet will be cut where its fragments end, as SCTP's large ones are. Pulling
    /// bytes out of the first one would move the cuts, and the receiver ends the association.
    #[inline(always)]
    fn is_cut_by_fragments(&self) -> bool {
        // SAFETY: the context of a running program.
        unsafe { (*self.skb).gso_size == GSO_BY_FRAGS }
    }

    #[inline(always)]
    fn write<T: Pod>(&mut self, offset: usize, value: &T, flags: u64) -> Option<()> {
        let len = size_of::<T>() as u32;
        let (at, from) = (offset as u32, from_ref(value).cast());
        // SAFETY: `value` is `len` bytes long; the helper checks the offset itself.
        let result = unsafe { bpf_skb_store_bytes(self.skb, at, from, len, flags) };
        (result == 0).then_some(())
    }

    #[inline(always)]
    fn fix_l4(&mut self, offset: usize, from: u64, to: u64, flags: u64) -> Option<()> {
        // SAFETY: the helper checks the offset itself.
        let result = unsafe { bpf_l4_csum_replace(self.skb, offset as u32, from, to, flags) };
        (result == 0).then_some(())
    }
}

#[inline(always)]
const fn optional_flag(optional: bool) -> u64 {
    if optional { ZERO_IS_NONE } else { 0 }
}

impl Packet for SkbPacket {
    #[inline(always)]
    fn protocol(&self) -> u16 {
        self.protocol
    }

    #[inline(always)]
    fn has_vlan(&self) -> bool {
        self.vlan != 0
    }

    #[inline(always)]
    fn is_for_other_host(&self) -> bool {
        self.kind == OTHER_HOST
    }

    #[inline(always)]
    fn device(&self) -> u32 {
        self.device
    }

    #[inline(always)]
    fn mark(&mut self, bits: u32) {
        // SAFETY: the context of a running program. Volatile, so that each stays an access of its
        // own, which is all that the verifier admits.
        unsafe {
            let mark = &raw mut (*self.skb).mark;
            mark.write_volatile(mark.read_volatile() | bits);
        }
    }

    #[inline(always)]
    fn next_hop4(&mut self, route: &Route<Ip4>) -> NextHop {
        let Some(params) = scratch::fib() else {
            return NextHop::Unresolved;
        };
        params.family = AF_INET;
        params.l4_protocol = route.proto.0;
        params.__bindgen_anon_3.ipv4_src = bytemuck::cast(route.src);
        params.__bindgen_anon_4.ipv4_dst = bytemuck::cast(route.dst);
        let result = self.look_up(route.device, params);
        // SAFETY: plain integers.
        let dst: Ip4 = bytemuck::cast(unsafe { params.__bindgen_anon_4.ipv4_dst });
        answer(route, result, params, dst)
    }

    #[inline(always)]
    fn next_hop6(&mut self, route: &Route<Ip6>) -> NextHop {
        let Some(params) = scratch::fib() else {
            return NextHop::Unresolved;
        };
        params.family = AF_INET6;
        params.l4_protocol = route.proto.0;
        params.__bindgen_anon_3.ipv6_src = bytemuck::cast(route.src);
        params.__bindgen_anon_4.ipv6_dst = bytemuck::cast(route.dst);
        let result = self.look_up(route.device, params);
        // SAFETY: plain integers.
        let dst: Ip6 = bytemuck::cast(unsafe { params.__bindgen_anon_4.ipv6_dst });
        answer(route, result, params, dst)
    }

    #[inline(always)]
    fn ready(&mut self, len: usize) {
        // SAFETY: the context of a running program.
        let (data, end, total) =
            unsafe { ((*self.skb).data, (*self.skb).data_end, (*self.skb).len) };
        let linear = end.wrapping_sub(data);
        if linear < len as u32 && total > linear && !self.is_cut_by_fragments() {
            let wanted = if total < len as u32 {
                total
            } else {
                len as u32
            };
            // SAFETY: the helper has no preconditions; a failure leaves the packet as it was, and
            // `load` sees that it is too short.
            unsafe { bpf_skb_pull_data(self.skb, wanted) };
        }
    }

    #[inline(always)]
    fn load<T: Pod>(&self, offset: usize) -> Option<T> {
        // SAFETY: the context of a running program.
        let (data, end) = unsafe { ((*self.skb).data as usize, (*self.skb).data_end as usize) };
        let p = (data as *const u8).wrapping_add(offset).cast::<T>();
        if p.wrapping_add(1) as usize > end {
            return None;
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: the line above checked that all of T lies before data_end.
        unsafe {
            value.as_mut_ptr().copy_from_nonoverlapping(p, 1);
            Some(value.assume_init())
        }
    }

    #[inline(always)]
    fn read<T: Pod>(&self, offset: usize) -> Option<T> {
        let mut value = MaybeUninit::<T>::uninit();
        let (to, len) = (value.as_mut_ptr().cast(), size_of::<T>() as u32);
        // SAFETY: `value` is `len` bytes long; the helper checks the offset itself, and has written
        // all of it if it returns 0.
        unsafe {
            let result = bpf_skb_load_bytes(self.skb.cast(), offset as u32, to, len);
            (result == 0).then(|| value.assume_init())
        }
    }

    #[inline(always)]
    fn store<T: Pod>(&mut self, offset: usize, value: T) -> Option<()> {
        self.write(offset, &value, INVALIDATE_HASH)
    }

    #[inline(always)]
    fn store_summed<T: Pod>(&mut self, offset: usize, value: &T) -> Option<()> {
        self.write(offset, value, INVALIDATE_HASH | RECOMPUTE_SUM)
    }

    #[inline(always)]
    fn fix_checksum(&mut self, offset: usize, difference: Difference) -> Option<()> {
        self.fix_l4(offset, 0, difference.sum().into(), 0)
    }

    #[inline(always)]
    fn fix_header_checksum(&mut self, offset: usize, from: Ip4, to: Ip4) -> Option<()> {
        let (from, to) = (word(from), word(to));
        // SAFETY: the helper checks the offset itself.
        let result = unsafe { bpf_l3_csum_replace(self.skb, offset as u32, from, to, 4) };
        (result == 0).then_some(())
    }

    #[inline(always)]
    fn fix_checksum4(&mut self, offset: usize, from: Ip4, to: Ip4, optional: bool) -> Option<()> {
        let flags = PSEUDO_HEADER | 4 | optional_flag(optional);
        self.fix_l4(offset, word(from), word(to), flags)
    }

    #[inline(always)]
    fn fix_checksum6(&mut self, offset: usize, from: &Ip6, to: &Ip6, optional: bool) -> Option<()> {
        // From where they lie, as in `store_summed`. The helper writes to neither.
        let (from, to) = (
            from_ref(from).cast_mut().cast(),
            from_ref(to).cast_mut().cast(),
        );
        // SAFETY: both addresses are 16 bytes long.
        let diff = unsafe { bpf_csum_diff(from, 16, to, 16, 0) };
        if diff < 0 {
            return None;
        }
        let flags = PSEUDO_HEADER | optional_flag(optional);
        self.fix_l4(offset, 0, diff as u64, flags)
    }

    #[inline(always)]
    fn fix_checksum_port(
        &mut self,
        offset: usize,
        from: Port,
        to: Port,
        optional: bool,
    ) -> Option<()> {
        let flags = 2 | optional_flag(optional);
        self.fix_l4(offset, from.wire().into(), to.wire().into(), flags)
    }

    #[inline(always)]
    fn pass_over(&self, from: usize, next: Proto) -> Chain {
        Chain::of_word(extension::pass_over(self.skb, from as u32, next.0.into()))
    }

    #[inline(always)]
    fn crc_change(&self, difference: u32, len: u32) -> u32 {
        crc::crc_change(difference, len)
    }
}

/// What the kernel's answer says, `dst` being the next hop that it named.
#[inline(always)]
fn answer<A: Address>(route: &Route<A>, result: u32, params: &bpf_fib_lookup, dst: A) -> NextHop {
    match result {
        BPF_FIB_LKUP_RET_SUCCESS | BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED
            if params.ifindex != route.device || dst != route.dst =>
        {
            NextHop::Elsewhere
        }
        BPF_FIB_LKUP_RET_SUCCESS => NextHop::Neighbour(Mac::from(params.dmac)),
        // Too large for the device: the stack knows what to answer. Errors: the device is gone.
        BPF_FIB_LKUP_RET_NO_NEIGH | BPF_FIB_LKUP_RET_FRAG_NEEDED | ERRORS.. => NextHop::Unresolved,
        _ => NextHop::Elsewhere,
    }
}

#[inline(always)]
fn word(addr: Ip4) -> u64 {
    bytemuck::cast::<_, u32>(addr).into()
}
