//! The table of picks, live on a terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};

use super::tally::{self, KINDS, Tally};
use crate::stats;

/// A table on standard output that is drawn over itself.
#[derive(Debug)]
pub(super) struct Live {
    is_terminal: bool,
    drawn: usize,
}

impl Live {
    /// Nothing drawn yet.
    pub(super) fn new() -> Self {
        Self {
            is_terminal: io::stdout().is_terminal(),
            drawn: 0,
        }
    }

    /// Draws over the last one; does nothing where that is not possible.
    pub(super) fn redraw(&mut self, tally: &Tally) -> io::Result<()> {
        if self.is_terminal {
            self.draw(tally)?;
        }
        Ok(())
    }

    /// Draws for good.
    pub(super) fn draw(&mut self, tally: &Tally) -> io::Result<()> {
        let text = text(tally);
        let mut out = io::stdout().lock();
        if self.drawn > 0 {
            // Up to where it began, then erase what follows.
            write!(out, "\x1b[{}A\x1b[J", self.drawn)?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.drawn = text.lines().count();
        Ok(())
    }
}

/// One line an endpoint, one that says how likely a fair draw is as uneven as this.
fn text(tally: &Tally) -> String {
    let mut text = String::from("  endpoint");
    for (protocol, family) in KINDS {
        let _ = write!(text, "{:>10}", format!("{protocol}/{family}"));
    }
    text.push_str("    picks    share  expected  deviation\n");
    let rows = tally.rows();
    let picks = tally::picks(&rows);
    let total: u64 = picks.iter().sum();
    let n = picks.len();
    for ((name, row), picks) in tally.names().iter().zip(&rows).zip(&picks) {
        let _ = write!(text, "  {name:<8}");
        for cell in row.0 {
            let _ = write!(text, "{cell:>10}");
        }
        let share = percent(*picks, total);
        let expected = percent(1, n as u64);
        let deviation = stats::deviation(*picks, total, n);
        let _ = writeln!(
            text,
            "{picks:>9}{share:>8.2}%{expected:>9.2}%{deviation:>+8.2} SE"
        );
    }
    text.push_str("  p-value ");
    for kind in 0..KINDS.len() {
        let _ = write!(text, "{:>10}", p_value(&tally::column(&rows, kind)));
    }
    let _ = writeln!(
        text,
        "{:>9}   (chi-square, all {total} picks)",
        p_value(&picks)
    );
    text
}

fn p_value(counts: &[u64]) -> String {
    stats::evenness(counts).map_or_else(
        |_| "-".to_owned(),
        |p| {
            if p < 0.001 {
                format!("{p:.0e}")
            } else {
                format!("{p:.3}")
            }
        },
    )
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * stats::ratio(part, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_share_and_deviation() {
        let tally = Tally::new(&["web-1", "web-2"]);
        for (name, count) in [("web-1", 60), ("web-2", 40)] {
            let answer = format!("{name} 10.0.0.1:80 10.0.0.2:90").parse().unwrap();
            for _ in 0..count {
                tally.count(KINDS[1], &answer);
            }
        }
        let text = text(&tally);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            "  web-1            0        60         0         0       60   60.00%    50.00%   +2.00 SE",
            lines[1]
        );
        assert_eq!(
            "  p-value          -     0.046         -         -    0.046   (chi-square, all 100 picks)",
            lines[3]
        );
    }

    #[test]
    fn an_empty_table_can_be_drawn() {
        assert_eq!(4, text(&Tally::new(&["a", "b"])).lines().count());
    }
}
