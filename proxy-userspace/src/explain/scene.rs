//! All that concerns one packet, taken at one moment.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytemuck::Zeroable as _;
use proxy_common::abi::{Counter, Device, Family as AbiFamily, Settings, V4, V6};
use proxy_common::datapath::memory::{MemoryTables, Stored};
use proxy_common::net::{Port, Proto};

use super::draw::{DataPath, DrawError, Fate, Shot, draw};
use super::excerpt::{Packet, Store, TIERS, excerpt};
use super::host::{HostPath, LOOPBACK};
use super::question::{Entry, Question, WhyQuestion};
use super::why::{self, why};
use crate::config::{Config, Detect};
use crate::control::api::explain::{Explanation, Why};
use crate::dataplane::{LoadError, Private, Trial};
use crate::model::Aside;
use crate::netfilter::Rules;
use crate::plan::{Account, Plan, Socket};

/// From where one looks: the plan of a node, its tables, and what else is known.
pub struct Sight<'a, T> {
    /// The plan.
    pub plan: &'a Plan,
    /// Services that are left aside.
    pub asides: &'a [Aside],
    /// The tables.
    pub tables: &'a T,
    /// What nftables does.
    pub rules: Rules,
    /// What the programs are told.
    pub settings: Settings,
    /// The time by their clock, in seconds.
    pub now: u32,
    /// Whether packets use these tables.
    pub is_live: bool,
}

/// Where the data path is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// In the kernel if it can be had, else on the host.
    Any,
    /// In the kernel.
    Kernel,
    /// On the host.
    Host,
}

/// All that concerns one packet. It borrows nothing: what follows may take its time.
pub struct Scene {
    pub(super) question: Question,
    pub(super) sport: u16,
    pub(super) entry: Entry,
    /// Why it comes in so, where that was not asked for.
    pub(super) entry_because: Option<String>,
    pub(super) node: Arc<str>,
    pub(super) zone: Option<Arc<str>>,
    pub(super) config: Config,
    pub(super) own: Arc<BTreeSet<IpAddr>>,
    /// What is planned for its address and port …
    pub(super) exact: Option<Account>,
    /// … and for the whole of its address.
    pub(super) whole: Option<Account>,
    /// The ports of the Service that has the whole of it.
    pub(super) whole_ports: Option<String>,
    /// The excerpt.
    pub(super) tables: MemoryTables,
    pub(super) rules: Rules,
    pub(super) is_live: bool,
}

/// What the data path did, and where it ran.
pub(super) struct Ran {
    pub(super) fate: Fate,
    pub(super) counted: Vec<Counter>,
    pub(super) is_kernel: bool,
    /// Why not in the kernel.
    pub(super) note: Option<String>,
}

impl<T> Sight<'_, T>
where
    T: Store<V4> + Store<V6>,
{
    /// Takes the scene of a packet.
    pub fn scene(&self, question: Question) -> io::Result<Scene> {
        match (question.src, question.dst.ip()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                self.of_family::<V4>(question, src.into(), dst.into())
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                self.of_family::<V6>(question, src.into(), dst.into())
            }
            // Questions are of one family.
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Says which Service an address and port belong to.
    pub fn why(&self, question: &WhyQuestion) -> Why {
        why(self.plan, self.asides, &self.rules, question)
    }

    fn of_family<F: Stored<Addr: Into<IpAddr>>>(
        &self,
        question: Question,
        src: F::Addr,
        dst: F::Addr,
    ) -> io::Result<Scene>
    where
        T: Store<F>,
    {
        let proto = Proto::from(question.proto);
        let mut packet = Packet::<F> {
            src,
            dst,
            sport: Port::zeroed(),
            dport: Port::new(question.dst.port()),
            proto,
        };
        let sport = match question.sport {
            Some(port) => port,
            None => self.unused_port(&mut packet)?,
        };
        packet.sport = Port::new(sport);
        let at = |port, proto| Socket {
            // All addresses of the loopback network lead to the same Services.
            addr: if question.dst.ip().is_loopback() && question.dst.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                question.dst.ip()
            },
            port,
            proto,
        };
        let exact = self.plan.account(at(question.dst.port(), proto));
        let port = exact.as_ref().and_then(|account| account.port.as_ref());
        let sources: Vec<_> = port
            .into_iter()
            .flat_map(|port| port.sources.iter().map(|range| (port.number, *range)))
            .collect();
        let mut tables = excerpt::<F>(self.tables, &packet, self.settings, &sources)?;
        tables.now = self.now;
        let (entry, entry_because) = match question.entry {
            Some(entry) => (entry, None),
            None => {
                let (entry, because) = self.entry::<F>(&tables, question.src, src);
                (entry, Some(because))
            }
        };
        let device = Device {
            inside: u16::from(entry == Entry::Pod),
            ..Device::zeroed()
        };
        tables.devices.insert(LOOPBACK, device);
        let whole = self.plan.account(at(0, Proto::ANY));
        let service = whole.as_ref().and_then(|account| account.claims.first());
        let service = service.and_then(|claim| self.plan.service(&claim.service));
        Ok(Scene {
            question,
            sport,
            entry,
            entry_because,
            node: Arc::clone(self.plan.node()),
            zone: self.plan.zone().cloned(),
            config: self.plan.config().clone(),
            own: Arc::clone(self.plan.own_addresses()),
            exact,
            whole_ports: service.map(|service| why::ports(&service.ports)),
            whole,
            tables,
            rules: self.rules.clone(),
            is_live: self.is_live,
        })
    }

    /// A source port of which no flow is known.
    fn unused_port<F: Stored>(&self, packet: &mut Packet<F>) -> io::Result<u16>
    where
        T: Store<F>,
    {
        for port in FIRST_PORT..=u16::MAX {
            packet.sport = Port::new(port);
            let key = packet.key();
            let mut is_free = true;
            for tier in TIERS {
                is_free &= Store::<F>::flow(self.tables, tier, &key)?.is_none();
            }
            if is_free {
                return Ok(port);
            }
        }
        Ok(FIRST_PORT)
    }

    /// How a packet from such a source comes to the node, and why that is so.
    fn entry<F: AbiFamily>(
        &self,
        tables: &MemoryTables,
        src: IpAddr,
        addr: F::Addr,
    ) -> (Entry, String) {
        if src.is_loopback() || self.plan.own_addresses().contains(&src) {
            return (Entry::Host, format!("{src} is an address of this node"));
        }
        if self.plan.local_endpoints().any(|own| own == src) {
            return (Entry::Pod, format!("an endpoint on this node has {src}"));
        }
        let own = self.plan.pod_cidrs();
        if own.iter().any(|range| range.contains(&src)) {
            let because = format!("{src} is in the podCIDRs of this node");
            return (Entry::Pod, because);
        }
        let is_pod = F::is_detected(&tables.detector, addr);
        let has_own = own
            .iter()
            .any(|range| range.addr().is_ipv4() == src.is_ipv4());
        match (is_pod, has_own) {
            (true, true) => (
                Entry::External,
                format!("{src} is a pod's, but not in the podCIDRs of this node"),
            ),
            (true, false) => {
                let range = range(self.plan.config(), src);
                (Entry::Pod, format!("{src} is in the range of pods{range}"))
            }
            (false, _) => (
                Entry::External,
                format!("{src} is no address of this node or of its pods"),
            ),
        }
    }
}

/// The first of the ports that systems take for clients of their own.
const FIRST_PORT: u16 = 49_152;

/// The range that tells pods from others, if it is configured by itself.
pub(super) fn range(config: &Config, addr: IpAddr) -> String {
    match &config.detect {
        Detect::ClusterCidr(ranges) => ranges
            .iter()
            .find(|range| range.contains(&addr))
            .map(|range| format!(", {range} (clusterCIDR)"))
            .unwrap_or_default(),
        Detect::NodeCidr => " (podCIDRs of this node)".to_owned(),
        Detect::BridgeInterface(_) | Detect::InterfaceNamePrefix(_) => String::new(),
    }
}

impl fmt::Debug for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scene = f.debug_struct("Scene");
        scene.field("question", &self.question);
        scene.finish_non_exhaustive()
    }
}

impl Scene {
    /// Runs the data path on the packet and says what became of it, and why.
    ///
    /// The kernel takes its time to verify the programs, so they are kept in `instance` for the
    /// next packet.
    pub fn explain(
        &self,
        run: Run,
        instance: &mut Option<Private>,
    ) -> Result<Explanation, DrawError> {
        match self.question.src {
            IpAddr::V4(_) => self.explain_in::<V4>(run, instance),
            IpAddr::V6(_) => self.explain_in::<V6>(run, instance),
        }
    }

    /// Where the packet comes from.
    pub(super) const fn from(&self) -> SocketAddr {
        SocketAddr::new(self.question.src, self.sport)
    }

    pub(super) fn shot(&self) -> Shot<'_> {
        Shot {
            proto: self.question.proto,
            from: self.from(),
            to: self.question.dst,
            entry: self.entry,
            own: &self.own,
            rules: &self.rules,
        }
    }

    /// Sends the packet.
    pub(super) fn run(&self, run: Run, instance: &mut Option<Private>) -> Result<Ran, DrawError> {
        // What a socket gets is decided on the host in any case: there is no program for it.
        if self.entry == Entry::Host || run == Run::Host {
            return self.run_on_host(None);
        }
        match self.loaded(instance) {
            Ok(private) => {
                let mut path = KernelPath {
                    private,
                    host: self.tables.clone(),
                };
                let fate = draw(&mut path, &self.shot())?;
                Ok(Ran {
                    fate,
                    counted: path.private.counted()?,
                    is_kernel: true,
                    note: None,
                })
            }
            Err(error) if run == Run::Any => {
                self.run_on_host(Some(format!("{:#}", anyhow::Error::new(error))))
            }
            Err(error) => Err(io::Error::other(error).into()),
        }
    }

    /// The programs on what concerns this packet.
    fn loaded<'a>(&self, instance: &'a mut Option<Private>) -> Result<&'a Private, LoadError> {
        let kept = match instance.take() {
            // One that cannot be used any more is as good as none.
            Some(mut own) => own
                .refill(&self.tables)
                .is_ok_and(|fits| fits)
                .then_some(own),
            None => None,
        };
        let own = match kept {
            Some(own) => own,
            None => Private::load(&self.tables)?,
        };
        Ok(instance.insert(own))
    }

    fn run_on_host(&self, note: Option<String>) -> Result<Ran, DrawError> {
        let mut path = HostPath::new(self.tables.clone());
        path.tables.random.0 ^= seed(self.is_live);
        let fate = draw(&mut path, &self.shot())?;
        let mut counted = path.counted();
        counted.extend(fate.counter);
        Ok(Ran {
            fate,
            counted,
            is_kernel: false,
            note,
        })
    }
}

/// Two questions about a live node are two draws; one about manifests always has the same answer.
fn seed(is_live: bool) -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    if is_live {
        RandomState::new().hash_one(0) | 1 << 63
    } else {
        0
    }
}

/// The programs in the kernel, in an instance of their own.
struct KernelPath<'a> {
    private: &'a Private,
    host: MemoryTables,
}

impl DataPath for KernelPath<'_> {
    fn ingress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        self.private.trial("tc_in", frame, 0)
    }

    fn egress(&mut self, frame: &[u8]) -> io::Result<Trial> {
        self.private.trial("tc_eg", frame, 0)
    }

    fn host(&mut self) -> &mut MemoryTables {
        &mut self.host
    }
}
