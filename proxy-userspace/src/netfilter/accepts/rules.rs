//! The accepts as rules, and how they are known again.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE};
use netlink_packet_netfilter::nftables::{
    Expressions, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage,
};

use super::super::attribute::{all, find, number, string, text};
use super::super::expressions::{accept, any_state, marked};
use super::super::message::Request;
use super::{CHAIN, TABLE};
use crate::model::Family;

/// What the comments of all rules of ours begin with.
const TAG: &str = "kube-lottery: ";

const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_RULE_USERDATA: u16 = 7;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_MATCH_NAME: u16 = 1;
const NFTA_MATCH_REV: u16 = 2;
const NFTA_MATCH_INFO: u16 = 3;
/// `NFTNL_UDATA_RULE_COMMENT`, which `nft` shows.
const COMMENT: u8 = 0;

/// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)` and `NF_CT_STATE_BIT(IP_CT_RELATED)`.
const ESTABLISHED_OR_RELATED: u8 = 1 << 1 | 1 << 2;
/// `XT_CONNTRACK_STATE`.
const MATCH_STATE: u8 = 1;

/// A rule that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accept {
    /// Accepts packets whose mark has any of these bits.
    Marked(u32),
    /// Accepts packets of connections that are established, and what belongs to those.
    Established,
}

impl Accept {
    /// What it is known by: it tells all that the rule does.
    fn comment(self) -> String {
        match self {
            Self::Marked(mark) => format!("{TAG}to be masqueraded ({mark:#x})"),
            Self::Established => format!("{TAG}related, established"),
        }
    }

    fn expressions(self, form: Form) -> Vec<Expressions> {
        let mut all = match (form, self) {
            (Form::Native, Self::Marked(mark)) => marked(mark),
            (Form::Native, Self::Established) => any_state(ESTABLISHED_OR_RELATED.into()),
            (Form::Iptables, Self::Marked(mark)) => vec![matching("mark", 1, mark_info(mark))],
            (Form::Iptables, Self::Established) => {
                vec![matching("conntrack", 3, conntrack_info())]
            }
        };
        if form == Form::Iptables {
            all.push(matching("comment", 0, comment_info(&self.comment())));
            // It has one in every rule.
            all.push(Expressions::Other {
                expression_type: "counter".to_owned(),
                attributes: Vec::new(),
            });
        }
        all.push(accept());
        all
    }
}

/// How a rule is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// By extensions of iptables, which alone every version of `iptables-nft` can list and restore.
    Iptables,
    /// As `nft` would write it.
    Native,
}

/// A rule of ours that the chain has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Found {
    handle: u64,
    comment: String,
}

impl Found {
    /// Takes a rule in, if it is of the chain and ours.
    pub(in super::super) fn parse(attributes: &[u8]) -> Option<Self> {
        let is = |kind, name| find(attributes, kind).is_some_and(|value| string(value) == name);
        if !is(NFTA_RULE_TABLE, TABLE) || !is(NFTA_RULE_CHAIN, CHAIN) {
            return None;
        }
        let handle = u64::from_be_bytes(find(attributes, NFTA_RULE_HANDLE)?.try_into().ok()?);
        let userdata = find(attributes, NFTA_RULE_USERDATA).and_then(userdata_comment);
        let matched = || {
            let expressions = find(attributes, NFTA_RULE_EXPRESSIONS)?;
            all(expressions).find_map(|(_, expression)| matched_comment(expression))
        };
        let comment = userdata.or_else(matched)?;
        comment.starts_with(TAG).then_some(Self { handle, comment })
    }
}

/// Whether a chain with these rules of ours has what is wanted, and only that.
pub(super) fn fit(found: &[Found], wanted: &[Accept]) -> bool {
    let mut has: Vec<_> = found.iter().map(|found| found.comment.clone()).collect();
    let mut wants: Vec<_> = wanted.iter().map(|accept| accept.comment()).collect();
    has.sort_unstable();
    wants.sort_unstable();
    has == wants
}

/// What puts the wanted rules at the head of the chain, in place of those found.
pub(super) fn replace(
    family: Family,
    found: &[Found],
    wanted: &[Accept],
    form: Form,
) -> Vec<Request> {
    let rule = |more: Vec<RuleAttribute>| {
        let chain = [
            RuleAttribute::Table(TABLE.to_owned()),
            RuleAttribute::Chain(CHAIN.to_owned()),
        ];
        let attributes = chain.into_iter().chain(more).collect();
        RuleMessage { attributes }
    };
    let mut all = Vec::new();
    for former in found {
        let message = NfTablesMessage::DeleteRule(rule(vec![RuleAttribute::Handle(former.handle)]));
        all.push(Request::new(family, 0, message));
    }
    // Each before all others, so the last one first.
    for accept in wanted.iter().rev() {
        let expressions = accept.expressions(form).into_iter();
        let mut attributes = vec![RuleAttribute::Expressions(
            expressions.map(ListAttribute::from).collect(),
        )];
        // Where there is a match as well, iptables shows both.
        if form == Form::Native {
            attributes.push(RuleAttribute::UserData(userdata(&accept.comment())));
        }
        let message = NfTablesMessage::NewRule(rule(attributes));
        all.push(Request::new(family, NLM_F_CREATE, message));
    }
    all
}

/// A match of iptables.
fn matching(name: &str, revision: u32, info: Vec<u8>) -> Expressions {
    Expressions::Other {
        expression_type: "match".to_owned(),
        attributes: vec![
            text(NFTA_MATCH_NAME, name),
            number(NFTA_MATCH_REV, revision),
            DefaultNla::new(NFTA_MATCH_INFO, info),
        ],
    }
}

/// `struct xt_mark_mtinfo1`, aligned as the kernel wants it: mark, mask, and whether to invert.
/// One bit only: a match compares all that the mask lets through.
fn mark_info(mark: u32) -> Vec<u8> {
    let mut info = [mark.to_ne_bytes(), mark.to_ne_bytes()].concat();
    info.resize(16, 0);
    info
}

/// `struct xt_conntrack_mtinfo3`, aligned: nothing but flags (at 146) and the states (at 150).
fn conntrack_info() -> Vec<u8> {
    let [flags_low, flags_high] = u16::from(MATCH_STATE).to_ne_bytes();
    let [states_low, states_high] = u16::from(ESTABLISHED_OR_RELATED).to_ne_bytes();
    let mut info = vec![0; 146];
    info.extend([flags_low, flags_high, 0, 0, states_low, states_high]);
    info.resize(168, 0);
    info
}

/// `struct xt_comment_info`.
fn comment_info(comment: &str) -> Vec<u8> {
    let mut info = comment.as_bytes().to_vec();
    info.resize(256, 0);
    info
}

/// The comment of a match, if the expression is one.
fn matched_comment(expression: &[u8]) -> Option<String> {
    if string(find(expression, NFTA_EXPR_NAME)?) != "match" {
        return None;
    }
    let data = find(expression, NFTA_EXPR_DATA)?;
    if string(find(data, NFTA_MATCH_NAME)?) != "comment" {
        return None;
    }
    let info = find(data, NFTA_MATCH_INFO)?;
    let comment = info.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(comment).into_owned())
}

/// A comment as `nft` keeps it: kind, length, and a string with a zero at its end.
fn userdata(comment: &str) -> Vec<u8> {
    let length = u8::try_from(comment.len() + 1).unwrap_or(u8::MAX);
    let mut data = vec![COMMENT, length];
    data.extend(comment.bytes());
    data.push(0);
    data
}

fn userdata_comment(mut data: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = data {
        let (value, others) = rest.split_at_checked(usize::from(*length))?;
        if *kind == COMMENT {
            return Some(string(value));
        }
        data = others;
    }
    None
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::Emitable as _;

    use super::*;

    const WANTED: [Accept; 2] = [Accept::Marked(0x4000), Accept::Established];

    /// A rule as a listing brings it, with a handle.
    fn listed(request: &Request, handle: u64) -> Vec<u8> {
        let mut bytes = vec![0; request.message.inner.buffer_len()];
        request.message.inner.emit(&mut bytes);
        let handle = DefaultNla::new(NFTA_RULE_HANDLE, handle.to_be_bytes().to_vec());
        let handle = [handle];
        let mut more = vec![0; handle.as_slice().buffer_len()];
        handle.as_slice().emit(&mut more);
        bytes.extend(more);
        bytes
    }

    #[test]
    fn rules_are_known_again_in_both_forms() {
        for form in [Form::Iptables, Form::Native] {
            let made = replace(Family::V4, &[], &WANTED, form);
            let found = made.iter().zip(7..);
            let found = found.filter_map(|(rule, handle)| Found::parse(&listed(rule, handle)));
            let found: Vec<_> = found.collect();
            assert_eq!(
                vec![7, 8],
                found.iter().map(|found| found.handle).collect::<Vec<_>>()
            );
            // The last one is the first of the chain.
            assert_eq!(WANTED[0].comment(), found[1].comment);
            assert!(fit(&found, &WANTED));
            assert!(!fit(&found[1..], &WANTED));
            assert!(!fit(&found, &[]));
            assert!(!fit(&[&found[..], &found[..1]].concat(), &WANTED));
            assert!(!fit(&found, &[Accept::Marked(0x8000), Accept::Established]));
        }
    }

    #[test]
    fn former_rules_go_in_the_same_batch() {
        let former = Found {
            handle: 12,
            comment: WANTED[0].comment(),
        };
        let made = replace(Family::V4, &[former], &WANTED, Form::Iptables);
        assert_eq!(3, made.len());
        let bytes = listed(&made[0], 12);
        assert_eq!(
            Some(&12_u64.to_be_bytes()[..]),
            find(&bytes, NFTA_RULE_HANDLE)
        );
        assert_eq!(None, find(&bytes, NFTA_RULE_EXPRESSIONS));
    }

    #[test]
    fn rules_of_others_are_left_alone() {
        let made = replace(Family::V4, &[], &WANTED, Form::Native);
        let mut rule = listed(&made[0], 7);
        let tag = TAG.as_bytes();
        let at = rule.windows(tag.len()).position(|window| window == tag);
        rule[at.unwrap()] = b'K';
        assert_eq!(None, Found::parse(&rule));
    }
}
