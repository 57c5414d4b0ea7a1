//! networking.k8s.io/v1 `ServiceCIDR`.

use k8s_openapi::api::networking::v1::ServiceCIDR as ApiServiceCidr;

use super::{Convert, Converted, Invalid, Selectors, parse_net};
use crate::model::{Family, IpNet, Object, ServiceCidr};

impl Convert for ApiServiceCidr {
    fn convert(&self) -> Result<Converted, Invalid> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        if name.is_empty() {
            return Err(Invalid::new("metadata.name", name, "give a name"));
        }
        let spec = self.spec.as_ref();
        let given = spec.and_then(|spec| spec.cidrs.as_deref());
        let mut cidrs: Vec<IpNet> = Vec::new();
        let mut left_out = Vec::new();
        for (index, text) in given.unwrap_or_default().iter().enumerate() {
            let family = |net: &IpNet| Family::of(net.addr());
            let legal = match parse_net(text) {
                None => "give a range such as 10.96.0.0/16 or fd00:10:96::/112",
                Some(net) if cidrs.iter().any(|other| family(other) == family(&net)) => {
                    "one range of each family at most"
                }
                Some(net) => {
                    cidrs.push(net.trunc());
                    continue;
                }
            };
            left_out.push(Invalid::new(format!("spec.cidrs[{index}]"), text, legal));
        }
        let own = ServiceCidr {
            name: name.into(),
            cidrs,
        };
        Ok(Converted {
            object: Some(Object::ServiceCidr(own.into())),
            left_out,
            aside: None,
        })
    }

    fn is_hidden(&self, selectors: Selectors) -> bool {
        selectors.hid(&self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_one_of_each_family() {
        let yaml = "
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.1/16, 'fd00:10:96::/112', 10.97.0.0/16, all]}";
        let api: ApiServiceCidr = serde_saphyr::from_str(yaml).unwrap();
        let converted = api.convert().unwrap();
        let expected = ServiceCidr {
            name: "kubernetes".into(),
            cidrs: vec![
                "10.96.0.0/16".parse().unwrap(),
                "fd00:10:96::/112".parse().unwrap(),
            ],
        };
        assert_eq!(Some(Object::ServiceCidr(expected.into())), converted.object);
        let left_out: Vec<_> = converted.left_out.iter().map(|out| &*out.field).collect();
        assert_eq!(["spec.cidrs[2]", "spec.cidrs[3]"], *left_out);
    }
}
