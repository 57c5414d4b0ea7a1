//! Manifests of a lab's Services, written as a person would write them.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::address::pod_ranges;
use super::{Addresses, Family, Host, Lab, Protocol};

/// A folder of manifests that a proxy reads.
#[derive(Debug)]
pub struct Manifests {
    folder: PathBuf,
}

impl Manifests {
    /// An empty folder of that name inside of the lab's.
    pub fn new(lab: &Lab, name: &str) -> Result<Self> {
        let folder = lab.folder().join(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The same with all nodes of the lab in it.
    pub fn with_nodes(lab: &Lab, name: &str) -> Result<Self> {
        let manifests = Self::new(lab, name)?;
        for (node, number) in lab.nodes().iter().zip(1..) {
            manifests.write(&format!("node-{}", node.name), &node_yaml(node, number))?;
        }
        Ok(manifests)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes or replaces one file, in one step: a reader sees the old text or the new one.
    pub fn write(&self, name: &str, yaml: &str) -> Result<()> {
        let file = self.folder.join(format!("{name}.yaml"));
        // Hidden and of another kind: nobody takes it for a manifest.
        let draft = self.folder.join(format!(".{name}.draft"));
        fs::write(&draft, yaml).with_context(|| format!("cannot write {}", draft.display()))?;
        fs::rename(&draft, &file).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Removes one file.
    pub fn remove(&self, name: &str) -> Result<()> {
        let file = self.folder.join(format!("{name}.yaml"));
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
    }

    /// Writes a Service and its slices, one of each family.
    pub fn write_service(&self, service: &Service) -> Result<()> {
        self.write(&format!("service-{}", service.name), &service.yaml())?;
        for family in Family::ALL {
            self.write_slice(service, family)?;
        }
        Ok(())
    }

    /// Writes the slice of one family of a Service.
    pub fn write_slice(&self, service: &Service, family: Family) -> Result<()> {
        let slice = service.slice_name(family);
        let endpoints: Vec<_> = service
            .endpoints
            .iter()
            .map(|endpoint| (endpoint.addresses.of(family), endpoint.node.as_str()))
            .collect();
        self.write(&slice, &service.slice_yaml(&slice, family, &endpoints))
    }
}

/// A Service for TCP and UDP in both families.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name, in namespace `default`.
    pub name: String,
    /// Cluster IPs.
    pub addresses: Addresses,
    /// Port that clients use.
    pub port: u16,
    /// Port that endpoints serve.
    pub target_port: u16,
    /// Node port, the same for both protocols.
    pub node_port: Option<u16>,
    /// Addresses of the load balancer in front of it.
    pub balancer: Option<Addresses>,
    /// More lines of its specification, such as `internalTrafficPolicy: Local`.
    pub spec: Vec<String>,
    /// Who serves it.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint of a Service.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Where it is reached.
    pub addresses: Addresses,
    /// Name of its node.
    pub node: String,
}

impl Endpoint {
    /// A pod, or a process in a node's own network.
    pub fn new(host: &Host, node: &Host) -> Self {
        Self {
            addresses: host.addresses,
            node: node.name.clone(),
        }
    }
}

impl Service {
    /// A Service with the `number`th Cluster IPs and no endpoints, from port 80 to port 8080.
    pub fn new(name: &str, number: u8) -> Self {
        Self {
            name: name.to_owned(),
            addresses: Addresses::service(number),
            port: 80,
            target_port: 8080,
            node_port: None,
            balancer: None,
            spec: Vec::new(),
            endpoints: Vec::new(),
        }
    }

    /// The same with these endpoints.
    #[must_use]
    pub fn with(mut self, endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        self.endpoints.extend(endpoints);
        self
    }

    /// The same with one more line of its specification.
    #[must_use]
    pub fn specified(mut self, line: &str) -> Self {
        self.spec.push(line.to_owned());
        self
    }

    /// The same with a node port.
    #[must_use]
    pub const fn at_node_port(mut self, port: u16) -> Self {
        self.node_port = Some(port);
        self
    }

    /// The same with a load balancer that has the `number`th addresses.
    #[must_use]
    pub const fn balanced(mut self, number: u8) -> Self {
        self.balancer = Some(Addresses::service(number));
        self
    }

    /// What clients connect to.
    pub fn target(&self, family: Family) -> std::net::SocketAddr {
        (self.addresses.of(family), self.port).into()
    }

    /// Name of the one slice of a family.
    pub fn slice_name(&self, family: Family) -> String {
        format!("slice-{}-{}", self.name, family.to_string().to_lowercase())
    }

    /// The Service as YAML.
    pub fn yaml(&self) -> String {
        let Self {
            name,
            addresses: Addresses { v4, v6 },
            port,
            target_port,
            node_port,
            balancer,
            spec,
            ..
        } = self;
        let kind = match (balancer, node_port) {
            (Some(_), _) => "LoadBalancer",
            (None, Some(_)) => "NodePort",
            (None, None) => "ClusterIP",
        };
        let mut yaml = format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  type: {kind}
  selector: {{app: {name}}}
  clusterIP: {v4}
  clusterIPs: [\"{v4}\", \"{v6}\"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
"
        );
        for line in spec {
            let _ = writeln!(yaml, "  {line}");
        }
        yaml.push_str("  ports:\n");
        let node_port = node_port.map_or_else(String::new, |port| format!(", nodePort: {port}"));
        for protocol in Protocol::ALL {
            let port_name = port_name(protocol);
            let _ = writeln!(
                yaml,
                "  - {{name: {port_name}, protocol: {protocol}, port: {port}, \
                 targetPort: {target_port}{node_port}}}"
            );
        }
        if let Some(Addresses { v4, v6 }) = balancer {
            let _ = writeln!(
                yaml,
                "status: {{loadBalancer: {{ingress: [{{ip: \"{v4}\"}}, {{ip: \"{v6}\"}}]}}}}"
            );
        }
        yaml
    }

    /// A slice of this Service as YAML: addresses and names of nodes.
    pub fn slice_yaml(&self, slice: &str, family: Family, endpoints: &[(IpAddr, &str)]) -> String {
        let Self {
            name, target_port, ..
        } = self;
        let mut yaml = format!(
            "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {slice}
  namespace: default
  labels: {{kubernetes.io/service-name: {name}}}
addressType: {family}
ports:
"
        );
        for protocol in Protocol::ALL {
            let port_name = port_name(protocol);
            let _ = writeln!(
                yaml,
                "- {{name: {port_name}, protocol: {protocol}, port: {target_port}}}"
            );
        }
        yaml.push_str(if endpoints.is_empty() {
            "endpoints: []\n"
        } else {
            "endpoints:\n"
        });
        for (address, node) in endpoints {
            let _ = writeln!(
                yaml,
                "- addresses: [\"{address}\"]
  nodeName: {node}
  conditions: {{ready: true, serving: true, terminating: false}}"
            );
        }
        yaml
    }
}

fn node_yaml(node: &Host, number: u8) -> String {
    let Addresses { v4, v6 } = node.addresses;
    let name = &node.name;
    let [range_v4, range_v6] = pod_ranges(number);
    format!(
        "apiVersion: v1
kind: Node
metadata: {{name: {name}}}
spec:
  podCIDR: {range_v4}
  podCIDRs: [\"{range_v4}\", \"{range_v6}\"]
status:
  addresses:
  - {{type: InternalIP, address: \"{v4}\"}}
  - {{type: InternalIP, address: \"{v6}\"}}
  - {{type: Hostname, address: {name}}}
"
    )
}

fn port_name(protocol: Protocol) -> String {
    format!("web-{protocol}").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_type_that_its_addresses_need() {
        let service = Service::new("web", 10).specified("internalTrafficPolicy: Local");
        let yaml = service.yaml();
        assert!(yaml.contains("  type: ClusterIP\n"));
        assert!(yaml.contains("  internalTrafficPolicy: Local\n  ports:\n"));
        let service = service.at_node_port(30_080);
        let yaml = service.yaml();
        assert!(yaml.contains("  type: NodePort\n"));
        assert_eq!(
            2,
            yaml.matches("targetPort: 8080, nodePort: 30080}\n").count()
        );
        let yaml = service.balanced(20).yaml();
        assert!(yaml.contains("  type: LoadBalancer\n"));
        assert!(yaml.ends_with("ingress: [{ip: \"10.96.0.20\"}, {ip: \"fd00:10:96::14\"}]}}\n"));
    }

    #[test]
    fn a_slice_lists_its_endpoints() {
        let service = Service::new("web", 10);
        let endpoints = [(Addresses::pod(1, 2).of(Family::V6), "node1")];
        let yaml = service.slice_yaml("web-a", Family::V6, &endpoints);
        assert!(yaml.contains("addressType: IPv6\n"));
        assert!(yaml.contains("- addresses: [\"fd00:10:244:1::2\"]\n  nodeName: node1\n"));
        let yaml = service.slice_yaml("web-a", Family::V6, &[]);
        assert!(yaml.ends_with("endpoints: []\n"));
    }
}
