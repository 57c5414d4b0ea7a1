//! Settings that `KubeProxyConfiguration` has no fields for, as flags give them.

use std::str::FromStr;

use super::{Config, ExternalIps};
use crate::cluster::{Invalid, parse_net};

impl FromStr for ExternalIps {
    type Err = Invalid;

    /// `allow`, `deny`, or ranges with commas between them.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "allow" => return Ok(Self::Allow),
            "deny" => return Ok(Self::Deny),
            _ => {}
        }
        let ranges = text.split(',').map(|part| {
            parse_net(part).ok_or_else(|| {
                Invalid::new(
                    "external IPs",
                    part,
                    "legal are allow, deny, and ranges such as 192.0.2.0/24 with commas between \
                     them",
                )
            })
        });
        Ok(Self::In(ranges.collect::<Result<_, _>>()?))
    }
}

impl Config {
    /// The same with another bit for rejection.
    pub fn with_reject_bit(mut self, bit: u8) -> Result<Self, Invalid> {
        if bit >= 32 {
            return Err(Invalid::new("reject bit", bit, "legal are 0 to 31"));
        }
        if bit == self.masquerade_bit {
            return Err(Invalid::new(
                "reject bit",
                bit,
                "must be another than the bit for masquerading",
            ));
        }
        self.reject_bit = bit;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn external_ips_are_allowed_denied_or_listed() {
        let include = |text: &str, addr: &str| {
            let policy: ExternalIps = text.parse().unwrap();
            policy.include(addr.parse().unwrap())
        };
        assert!(include("allow", "192.0.2.1"));
        assert!(!include("deny", "192.0.2.1"));
        assert!(include("198.51.100.0/24,192.0.2.0/24", "192.0.2.1"));
        assert!(!include("198.51.100.0/24,2001:db8::/32", "192.0.2.1"));
        for bad in ["", "Allow", "192.0.2.1", "allow,192.0.2.0/24"] {
            assert!(bad.parse::<ExternalIps>().is_err(), "{bad}");
        }
    }

    #[test]
    fn one_bit_cannot_ask_for_both() {
        let config = Config::default();
        let taken = config.masquerade_bit;
        assert!(config.clone().with_reject_bit(taken).is_err());
        assert!(config.clone().with_reject_bit(32).is_err());
        assert_eq!(3, config.with_reject_bit(3).unwrap().reject_bit);
    }
}
