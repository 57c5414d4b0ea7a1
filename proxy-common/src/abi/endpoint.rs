//! Endpoints: the array of records, the sets that list them, and the way back to frontends.

use bytemuck::{Pod, Zeroable};

use crate::net::{Address, Ip4, Ip6, Port, Proto};

/// One slot of the set array.
///
/// The service number guards a reader that holds a frontend across two quick updates: a slot that
/// was handed to another service in the meantime is seen to be foreign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Slot {
    /// Index into the endpoint array.
    pub endpoint: u32,
    /// Service port that owns this slot.
    pub service: u32,
}

const _: () = assert!(size_of::<Slot>() == 8);

/// Properties of an endpoint, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(transparent)]
pub struct EndpointFlags(pub u8);

impl EndpointFlags {
    /// The slot holds no endpoint.
    pub const NONE: Self = Self(0);
    /// The slot holds an endpoint that takes new flows: some set lists it.
    pub const ALIVE: Self = Self(1);
    /// The endpoint runs on this node.
    pub const LOCAL: Self = Self(2);
    /// The slot is in use, also by an endpoint that only keeps the flows it has. A slot that was
    /// given up keeps nothing but its generation.
    pub const HELD: Self = Self(4);
    /// The endpoint takes new flows, and is in the sets of all endpoints of the cluster.
    pub const IN_CLUSTER_SET: Self = Self(8);
    /// The endpoint takes new flows, and is in the sets of local endpoints.
    pub const IN_LOCAL_SET: Self = Self(16);

    /// Both properties.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `bits` are set.
    #[inline(always)]
    pub const fn has(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }
}

/// What the data path reads of an endpoint record, whatever the family.
pub trait Endpoint: Pod {
    /// The family's address.
    type Addr: Address;
    /// Address that packets are sent to.
    fn addr(&self) -> Self::Addr;
    /// Port that packets are sent to.
    fn port(&self) -> Port;
    /// How often this slot has changed hands.
    fn generation(&self) -> u32;
    /// Service port that the record belongs to.
    fn service(&self) -> u32;
    /// Properties.
    fn flags(&self) -> EndpointFlags;
    /// Whether new flows may go there.
    fn is_alive(&self) -> bool;
}

macro_rules! endpoint {
    ($(#[$doc:meta])* $name:ident, $addr:ty, $size:literal $(, $pad:ident: $pad_type:ty)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// Address that packets are sent to.
            pub addr: $addr,
            /// Port that packets are sent to.
            pub port: Port,
            /// Properties.
            pub flags: EndpointFlags,
            /// Zero.
            pub pad: u8,
            /// Raised whenever the slot is given up: a UDP flow that remembers an older
            /// generation chooses again.
            pub generation: u32,
            /// Service port that the record belongs to.
            pub service: u32,
            $(
                /// Zero.
                pub $pad: $pad_type,
            )?
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl Endpoint for $name {
            type Addr = $addr;

            #[inline(always)]
            fn addr(&self) -> $addr {
                self.addr
            }

            #[inline(always)]
            fn port(&self) -> Port {
                self.port
            }

            #[inline(always)]
            fn generation(&self) -> u32 {
                self.generation
            }

            #[inline(always)]
            fn service(&self) -> u32 {
                self.service
            }

            #[inline(always)]
            fn flags(&self) -> EndpointFlags {
                self.flags
            }

            #[inline(always)]
            fn is_alive(&self) -> bool {
                self.flags.has(EndpointFlags::ALIVE)
            }
        }
    };
}

endpoint!(
    /// Element of the IPv4 endpoint array, one per (service port, endpoint).
    Endpoint4, Ip4, 16
);
endpoint!(
    /// Element of the IPv6 endpoint array, one per (service port, endpoint).
    Endpoint6, Ip6, 32, pad2: u32
);

/// How many frontends are kept for one endpoint; more are not needed to repair flows, they are
/// repaired from the client's side.
pub const FRONTENDS_PER_ENDPOINT: usize = 8;

macro_rules! reverse {
    ($(#[$key_doc:meta])* $key:ident $key_size:literal, $door:ident,
     $(#[$doc:meta])* $name:ident $size:literal, $addr:ty) => {
        $(#[$key_doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Pod, Zeroable)]
        #[repr(C)]
        pub struct $key {
            /// Address of the endpoint.
            pub addr: $addr,
            /// Port of the endpoint.
            pub port: Port,
            /// Transport protocol.
            pub proto: Proto,
            /// Zero.
            pub pad: u8,
        }

        const _: () = assert!(size_of::<$key>() == $key_size);

        impl $key {
            /// The key of this endpoint.
            #[inline(always)]
            pub const fn new(addr: $addr, port: Port, proto: Proto) -> Self {
                Self { addr, port, proto, pad: 0 }
            }
        }

        /// Address and port of one frontend; port 0 where there is none.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $door {
            /// Address of the frontend.
            pub addr: $addr,
            /// Port of the frontend.
            pub port: Port,
            /// Zero.
            pub pad: u16,
        }

        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
        #[repr(C)]
        pub struct $name {
            /// The frontends, used ones first.
            pub doors: [$door; FRONTENDS_PER_ENDPOINT],
        }

        const _: () = assert!(size_of::<$name>() == $size);

        impl $name {
            /// The `index`th frontend, if there are that many.
            #[inline(always)]
            pub fn at(&self, index: usize) -> Option<($addr, Port)> {
                let door = self.doors.get(index)?;
                (door.port.wire() != 0).then_some((door.addr, door.port))
            }

            /// The first [`FRONTENDS_PER_ENDPOINT`] of `frontends`.
            pub fn new(frontends: impl IntoIterator<Item = ($addr, Port)>) -> Self {
                let mut doors = [$door::zeroed(); FRONTENDS_PER_ENDPOINT];
                for (door, (addr, port)) in doors.iter_mut().zip(frontends) {
                    *door = $door { addr, port, pad: 0 };
                }
                Self { doors }
            }
        }
    };
}

reverse!(
    /// Key of the map from IPv4 endpoints to their frontends.
    EndpointKey4 8, Door4,
    /// The frontends of an IPv4 endpoint.
    Frontends4 64, Ip4
);
reverse!(
    /// Key of the map from IPv6 endpoints to their frontends.
    EndpointKey6 20, Door6,
    /// The frontends of an IPv6 endpoint.
    Frontends6 160, Ip6
);
