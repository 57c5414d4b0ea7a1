//! What the program says of its own command line: completion scripts and manual pages.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code, and a panic is how a test fails"
)]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn kube_lottery(arguments: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-lottery"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    output
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = text(kube_lottery(&["--help"]).stdout);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let list = list.lines().take_while(|line| line.starts_with(' '));
    // What a line begins with, unless it goes on from the one before.
    let names = list.filter(|line| !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let names: Vec<_> = names.filter(|name| name != "help").collect();
    assert!(names.len() >= 8, "{help}");
    names
}

/// What a shell says of a script; nothing where the shell is not installed.
fn shell(name: &str, arguments: &[&str], script: &str) -> Option<Output> {
    let child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.ok()?;
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    Some(output)
}

#[test]
fn every_shell_gets_a_script_that_it_can_read_and_that_names_every_command() {
    for name in ["bash", "zsh", "fish"] {
        let script = text(kube_lottery(&["completion", name]).stdout);
        for command in commands() {
            assert!(script.contains(&command), "{name}: {command}");
        }
        // Each of the three reads without running by this.
        drop(shell(name, &["-n"], &script));
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = text(kube_lottery(&["completion", "bash"]).stdout);
    let complete = |words: &[&str]| {
        let line = words.join(" ");
        let (cursor, before) = (words.len() - 1, words.len() - 2);
        // As readline calls it: the words, where the cursor is, and what to complete.
        let script = format!(
            "{script}\nCOMP_WORDS=({line}) COMP_CWORD={cursor}\n\
             how=$(complete -p kube-lottery)\nhow=${{how##*-F }}\n\
             ${{how%% *}} kube-lottery '{}' '{}'\necho \"${{COMPREPLY[@]}}\"\n",
            words[cursor], words[before]
        );
        Some(text(shell("bash", &[], &script)?.stdout).trim().to_owned())
    };
    let Some(status) = complete(&["kube-lottery", "stat"]) else {
        return;
    };
    assert_eq!("status", status);
    let flags = complete(&["kube-lottery", "services", "--no"]).unwrap();
    assert_eq!("--no-headers", flags);
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = std::env::temp_dir().join(format!("kube-lottery-man-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    kube_lottery(&["man", "--directory", folder.to_str().unwrap()]);
    let pages = commands()
        .into_iter()
        .map(|name| format!("kube-lottery-{name}.1"));
    for page in pages.chain(["kube-lottery.1".to_owned()]) {
        let page = std::fs::read_to_string(folder.join(&page)).unwrap();
        assert_readable(&page);
    }
    std::fs::remove_dir_all(&folder).unwrap();
    let main = text(kube_lottery(&["man"]).stdout);
    assert!(
        main.starts_with(".ie") && main.contains(".SH SUBCOMMANDS"),
        "{main}"
    );
}

/// Fails if the typesetter has something to say of a page; it is not installed everywhere.
fn assert_readable(page: &str) {
    let Some(groff) = ["/usr/bin/groff"]
        .into_iter()
        .find(|path| Path::new(path).exists())
    else {
        return;
    };
    let output = shell(groff, &["-man", "-ww", "-z"], page).unwrap();
    assert!(output.stderr.is_empty(), "{}", text(output.stderr));
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-lottery"))
        .args(["man", "--directory", "/nonexistent/pages"])
        .output()
        .unwrap();
    assert_eq!(Some(1), output.status.code());
    let said = text(output.stderr);
    assert!(said.contains("/nonexistent/pages"), "{said}");
}
