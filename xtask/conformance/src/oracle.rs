//! The real kube-proxy: what it does to the packets of cases.

mod observed;
mod request;

use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use kube_lottery::config::Mode;

use crate::case::{Case, Outcome};
use observed::Answer;
use request::request;

/// The program in `xtask/oracle`, built.
#[derive(Clone, Debug)]
pub struct Oracle {
    program: PathBuf,
}

/// What became of a packet, or why that is not certain.
pub type Observation = Result<Outcome, String>;

impl Oracle {
    /// The oracle at this path.
    pub const fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// What kube-proxy does to each packet of each case; nothing certain of any packet of a case
    /// that could not be looked at.
    pub fn observe(&self, cases: &[Case], mode: Mode) -> Result<Vec<Vec<Observation>>> {
        let requests: Vec<_> = cases.iter().map(|case| request(case, mode)).collect();
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let input = child.stdin.take().context("its input is piped")?;
        let output = child.stdout.take().context("its output is piped")?;
        // It reads all before it answers; a pipe holds less than that.
        let writer = thread::spawn(move || -> Result<()> {
            let mut input = BufWriter::new(input);
            serde_json::to_writer(&mut input, &requests)?;
            input.flush()?;
            Ok(())
        });
        let mut all = Vec::with_capacity(cases.len());
        for (line, case) in BufReader::new(output).lines().zip(cases) {
            let line = line.context("cannot read what the oracle says")?;
            let answer: Answer =
                serde_json::from_str(&line).context("cannot understand the oracle")?;
            all.push(answer.observations(case));
        }
        let status = child.wait().context("cannot wait for the oracle")?;
        let written = writer.join().unwrap_or_else(|_| Ok(()));
        ensure!(
            status.success() && all.len() == cases.len(),
            "the oracle has ended with {status}"
        );
        written.context("cannot ask the oracle")?;
        Ok(all)
    }
}

/// Notes what kube-proxy does in both modes: `expect`, and `expect_iptables` where it differs.
/// Packets of which nothing is certain are left out; returns those, with the reason.
pub fn fill_in(cases: &mut [Case], oracle: &Oracle) -> Result<Vec<String>> {
    let nftables = oracle.observe(cases, Mode::Nftables)?;
    let iptables = oracle.observe(cases, Mode::Iptables)?;
    let mut left_out = Vec::new();
    for ((case, nftables), iptables) in cases.iter_mut().zip(nftables).zip(iptables) {
        let mut kept = Vec::with_capacity(case.packets.len());
        let mut unsure = Vec::new();
        for ((mut packet, nftables), iptables) in std::mem::take(&mut case.packets)
            .into_iter()
            .zip(nftables)
            .zip(iptables)
        {
            match (nftables, iptables) {
                (Ok(nftables), Ok(iptables)) => {
                    packet.expect_iptables = (iptables != nftables).then_some(iptables);
                    packet.expect = Some(nftables);
                    kept.push(packet);
                }
                (Err(reason), _) | (_, Err(reason)) => unsure.push((packet.name, reason)),
            }
        }
        case.packets = kept;
        left_out.extend(unsure_of(case, unsure));
    }
    Ok(left_out)
}

/// What is not certain of the packets of a case. What is wrong with the whole of it is said once.
fn unsure_of(case: &Case, unsure: Vec<(String, String)>) -> Vec<String> {
    let name = &case.name;
    match &unsure[..] {
        [(_, reason), others @ ..]
            if case.packets.is_empty() && others.iter().all(|(_, other)| other == reason) =>
        {
            vec![format!("{name}: {reason}")]
        }
        _ => unsure
            .into_iter()
            .map(|(packet, reason)| format!("{name}: {packet}: {reason}"))
            .collect(),
    }
}
