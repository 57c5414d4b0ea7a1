//! What things may cost: a text file of names and figures, and how a new figure compares.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result, bail, ensure};

/// So much more than its budget a figure may be: machines are not that exact.
pub const TOLERANCE: f64 = 0.15;

/// The figures that were agreed on, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Budgets(BTreeMap<String, f64>);

/// How a figure compares with its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// At most the tolerance above.
    Within,
    /// So much below that the budget would hide the next loss.
    Cheaper,
    /// More than the tolerance above.
    Broken,
    /// There is no budget of that name.
    Missing,
}

impl Budgets {
    /// Reads a file's text: a name and a figure on each line, `#` begins a comment.
    pub fn parse(text: &str) -> Result<Self> {
        let mut budgets = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split_once('#').map_or(line, |(before, _)| before);
            let words: Vec<_> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [name, figure] => {
                    let value = figure.parse::<f64>();
                    let value = value
                        .with_context(|| format!("line {number}: {figure} is not a number"))?;
                    ensure!(
                        value.is_finite() && value >= 0.0,
                        "line {number}: {figure} is no cost"
                    );
                    let former = budgets.0.insert((*name).to_owned(), value);
                    ensure!(former.is_none(), "line {number}: {name} is there twice");
                }
                _ => bail!("line {number} is not a name and a figure"),
            }
        }
        Ok(budgets)
    }

    /// The budget of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }

    /// Agrees on a figure.
    pub fn set(&mut self, name: &str, value: f64) {
        self.0.insert(name.to_owned(), value);
    }

    /// Keeps the budgets whose names `is_wanted` says.
    pub fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_wanted(name));
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Compares a figure with its budget. `resolution` is how far off it may be by the way it was
    /// measured.
    pub fn judge(&self, name: &str, value: f64, resolution: f64) -> Verdict {
        let Some(budget) = self.get(name) else {
            return Verdict::Missing;
        };
        if value > budget * (1.0 + TOLERANCE) + resolution {
            Verdict::Broken
        } else if value < budget * (1.0 - TOLERANCE) - resolution {
            Verdict::Cheaper
        } else {
            Verdict::Within
        }
    }
}

impl fmt::Display for Budgets {
    /// Lines that [`Budgets::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.keys().map(String::len).max().unwrap_or_default();
        for (name, value) in &self.0 {
            let decimals = if value.fract() == 0.0 { 0 } else { 3 };
            writeln!(f, "{name:width$}  {value:>8.decimals$}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, value: f64) -> Budgets {
        let mut budgets = Budgets::default();
        budgets.set(name, value);
        budgets
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut budgets = one("known/ipv4/in", 0.806);
        budgets.set("tc_in@6.18", 12_345.0);
        let text = format!("# A comment.\n\n{budgets}");
        assert!(text.contains("12345\n"), "{text}");
        assert_eq!(budgets, Budgets::parse(&text).unwrap());
    }

    #[test]
    fn a_figure_breaks_its_budget_above_the_tolerance() {
        let budgets = one("path", 1.0);
        assert_eq!(Verdict::Within, budgets.judge("path", 1.149, 0.0));
        assert_eq!(Verdict::Broken, budgets.judge("path", 1.151, 0.0));
        assert_eq!(Verdict::Within, budgets.judge("path", 1.151, 0.01));
        assert_eq!(Verdict::Broken, budgets.judge("path", 1.161, 0.01));
    }

    #[test]
    fn a_figure_far_below_its_budget_is_told() {
        let budgets = one("path", 1.0);
        assert_eq!(Verdict::Within, budgets.judge("path", 0.851, 0.0));
        assert_eq!(Verdict::Cheaper, budgets.judge("path", 0.849, 0.0));
        assert_eq!(Verdict::Within, budgets.judge("path", 0.849, 0.01));
    }

    #[test]
    fn what_has_no_budget_is_not_within_it() {
        assert_eq!(Verdict::Missing, Budgets::default().judge("path", 0.0, 0.0));
    }

    #[test]
    fn lines_that_say_nothing_are_refused() {
        for text in [
            "path",
            "path 1 2",
            "path one",
            "path -1",
            "path NaN",
            "path 1\npath 2",
        ] {
            assert!(Budgets::parse(text).is_err(), "{text}");
        }
    }
}
