//! The rows against the page.

use std::collections::BTreeSet;
use std::path::Path;

use kube_lottery::manifests::Source;

use super::rows::{GOOD, Input, Row, SOUND, rows};
use super::world::{Dir, World};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bad-input.md");

/// The line above the table that is made from the rows.
const HEAD: &str = "| input | messages | served if it is new | served if it was good before |\n\
                    | --- | --- | --- | --- |\n";

/// What is served of a sound `a.yaml`.
const WHOLE: [&str; 2] = [
    "a 10.96.0.2:80/TCP → 10.1.0.2, 10.1.0.3",
    "a [fd00::2]:80/TCP → fd01::2, fd01::3",
];

#[test]
fn every_row_is_as_the_page_says() {
    let seen: Vec<_> = rows().iter().map(line).collect();
    let page = std::fs::read_to_string(PAGE).unwrap();
    let at = page.find(HEAD).unwrap() + HEAD.len();
    let (head, expected) = page.split_at(at);
    if std::env::var_os("KUBE_LOTTERY_BLESS").is_some() {
        std::fs::write(PAGE, format!("{head}{}", seen.concat())).unwrap();
        return;
    }
    let expected: Vec<_> = expected.split_inclusive('\n').collect();
    for (expected, seen) in expected.iter().zip(&seen) {
        assert_eq!(expected, seen);
    }
    assert_eq!(expected.len(), seen.len());
    let names: BTreeSet<_> = rows().iter().map(|row| row.name).collect();
    assert_eq!(names.len(), seen.len(), "two rows have one name");
}

/// A row as the page shows it, once what it says has come true.
fn line(row: &Row) -> String {
    let new = run(row, false);
    let after = run(row, true);
    assert_eq!(new.messages, after.messages, "{}", row.name);
    let shown = row.shown();
    let shown = if shown.is_empty() {
        shown
    } else {
        format!("<br>`{shown}`")
    };
    let input = format!("{}{shown}", row.name);
    format!(
        "| {input} | {} | {} | {} |\n",
        cell(&after.messages, "none"),
        served(&new.served),
        served(&after.served),
    )
}

fn served(lines: &[String]) -> String {
    if lines == WHOLE {
        return "all of it".to_owned();
    }
    cell(lines, "nothing of it")
}

fn cell(lines: &[String], none: &str) -> String {
    if lines.is_empty() {
        none.to_owned()
    } else {
        lines.join("<br>")
    }
}

struct Seen {
    messages: Vec<String>,
    served: Vec<String>,
}

/// Does what the row says, in a directory that has another, good file.
fn run(row: &Row, was_good: bool) -> Seen {
    let dir = Dir::new();
    dir.write("good.yaml", GOOD);
    let source = Source::new(dir.0.clone());
    let mut world = World::new(source, &dir.0, row.limits.unwrap_or_default());
    if was_good {
        dir.write("a.yaml", SOUND);
    }
    world.read();
    assert_eq!(Vec::<String>::new(), world.messages, "{}", row.name);
    spoil(&dir, &row.input);
    world.read();
    let served = world.served();
    let (good, rest): (Vec<_>, _) = served
        .into_iter()
        .partition(|line| line.starts_with("good "));
    assert_eq!(["good 10.96.0.1:80/TCP → 10.1.0.1"], *good, "{}", row.name);
    Seen {
        messages: world.messages,
        served: rest,
    }
}

fn spoil(dir: &Dir, input: &Input) {
    let file = dir.0.join("a.yaml");
    let replace = |make: &dyn Fn(&Path)| {
        std::fs::remove_file(&file).ok();
        make(&file);
    };
    match input {
        Input::Edit(from, to) => {
            assert!(SOUND.contains(from), "{from}");
            dir.write("a.yaml", &SOUND.replacen(from, to, 1));
        }
        Input::Text(text) => dir.write("a.yaml", text),
        Input::Bytes(bytes) => std::fs::write(&file, bytes).unwrap(),
        Input::Link(target) => {
            replace(&|file| std::os::unix::fs::symlink(target, file).unwrap());
        }
        Input::Pipe => replace(&|file| {
            let made = std::process::Command::new("mkfifo").arg(file).status();
            assert!(made.unwrap().success());
        }),
        Input::Other(text) => {
            dir.write("a.yaml", text);
            let service = text.split("---").next().unwrap_or_default();
            dir.write("b.yaml", &service.replace("80", "81"));
        }
        Input::NoFiles => {
            for entry in std::fs::read_dir(&dir.0).unwrap() {
                std::fs::remove_file(entry.unwrap().path()).unwrap();
            }
        }
        Input::NoDirectory => std::fs::remove_dir_all(&dir.0).unwrap(),
    }
}
