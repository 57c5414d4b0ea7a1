//! What people read of `explain` and `why`, on the host: each file in `explain/golden` is a command
//! and what it says of the cluster in `explain/cluster.yaml`.
//!
//! `KUBE_LOTTERY_GOLDEN=write` writes the files anew.

#![expect(
    clippy::unwrap_used,
    reason = "all of this is test code: a panic is how a test fails"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explain")
}

/// What a command prints, and its exit code.
fn say(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-lottery"));
    command.args(arguments);
    command.args(["--manifests", "cluster.yaml", "--node", "node1"]);
    command.args(["--config", "proxy.yaml"]);
    if arguments.first() == Some(&"explain") {
        command.args(["--data-path", "host"]);
    }
    let output = command.current_dir(folder()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert_eq!("", notes, "{arguments:?}");
    let code = output.status.code().unwrap();
    format!("{text}exit code {code}\n")
}

#[test]
fn people_read_what_is_written_down() {
    let mut files: Vec<_> = std::fs::read_dir(folder().join("golden"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let is_written = std::env::var_os("KUBE_LOTTERY_GOLDEN").is_some_and(|value| value == "write");
    let mut wrong = Vec::new();
    for file in &files {
        let expected = std::fs::read_to_string(file).unwrap();
        let first = expected.lines().next().unwrap();
        let command = first.strip_prefix("$ kube-lottery ").unwrap();
        let arguments: Vec<_> = command.split(' ').collect();
        let got = format!("{first}\n{}", say(&arguments));
        if is_written {
            std::fs::write(file, got).unwrap();
        } else if got != expected {
            wrong.push(format!("{}: got\n{got}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files.len() >= 20, "{}", files.len());
}

#[test]
fn the_readme_shows_what_is_said() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    for name in ["01-cluster-ip.txt", "22-why-policy-local.txt"] {
        let golden = std::fs::read_to_string(folder().join("golden").join(name)).unwrap();
        let (shown, _code) = golden.rsplit_once("exit code").unwrap();
        assert!(readme.contains(shown.trim_end()), "{name}");
    }
}

#[test]
fn json_and_yaml_say_the_same() {
    let packet = ["explain", "10.244.1.7", "10.96.0.10:80"];
    let parse = |format| {
        let text = say(&[&packet[..], &["-o", format]].concat());
        text.strip_suffix("exit code 0\n").unwrap().to_owned()
    };
    let json: serde_json::Value = serde_json::from_str(&parse("json")).unwrap();
    let yaml: serde_json::Value = serde_saphyr::from_str(&parse("yaml")).unwrap();
    assert_eq!(json, yaml);
    assert_eq!("Explanation", json["kind"]);
    assert_eq!("host", json["dataPath"]);
    assert_eq!(3, json["lottery"]["endpoints"]);
    let odds = |index: usize| json["endpoints"][index]["probability"].as_f64().unwrap();
    assert!((odds(0) - 1.0 / 3.0).abs() < 1e-12);
    assert!(odds(3) < 1e-12);
}

#[test]
fn a_bad_question_is_told_what_is_wrong_with_it() {
    for (arguments, said) in [
        (
            ["explain", "10.244.1.7", "10.96.0.10"],
            "error: destination: 10.96.0.10 is not legal; give address:port",
        ),
        (
            ["explain", "fd00::1", "10.96.0.10:80"],
            "error: source: fd00::1 is not legal; give two addresses of one family",
        ),
        (["why", "10.96.0.10:80", "--manifests=gone.yaml"], "error: "),
        (
            ["why", "10.96.0.10:80", "--control-socket=gone.sock"],
            "error: no controller answers on gone.sock",
        ),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_kube-lottery"))
            .args(arguments)
            .current_dir(folder())
            .output()
            .unwrap();
        let notes = String::from_utf8(output.stderr).unwrap();
        assert_eq!(Some(2), output.status.code(), "{notes}");
        assert!(notes.starts_with(said), "{notes}");
        assert!(output.stdout.is_empty());
    }
}
