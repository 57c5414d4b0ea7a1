//! Files and directories that change as editors, installers and Kubernetes change them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use kube_lottery::manifests::{Follower, Source, Update, follow};
use kube_lottery::plan::Limits;
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError, unbounded_channel};

use super::rows::GOOD;
use super::world::{Dir, World};

/// A world that follows its files.
struct Followed {
    world: World,
    updates: UnboundedReceiver<Update>,
    _follower: Follower,
}

impl Followed {
    fn new(dir: &Dir, path: &Path, allow_empty: bool) -> Self {
        let (sender, updates) = unbounded_channel();
        let source = Source::new(path.to_path_buf()).allow_empty(allow_empty);
        let follower = follow(source, sender).unwrap();
        let idle = Source::new(path.to_path_buf());
        Self {
            world: World::new(idle, &dir.0, Limits::default()),
            updates,
            _follower: follower,
        }
    }

    /// Follows until this and nothing else is served.
    fn expect(&mut self, served: &[&str]) {
        self.expect_that(|world| world.served() == served, &format!("{served:?}"));
    }

    /// Follows until a message ends like this.
    fn expect_message(&mut self, end: &str) {
        self.expect_that(
            |world| world.messages.iter().any(|message| message.ends_with(end)),
            end,
        );
    }

    fn expect_that(&mut self, is_so: impl Fn(&World) -> bool, what: &str) {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_so(&self.world) {
            match self.updates.try_recv() {
                Ok(update) => self.world.take(update),
                Err(TryRecvError::Disconnected) => panic!("the follower ended"),
                Err(TryRecvError::Empty) => std::thread::sleep(Duration::from_millis(1)),
            }
            let (served, messages) = (self.world.served(), &self.world.messages);
            assert!(
                Instant::now() < end,
                "not {what} but {served:?} {messages:?}"
            );
        }
    }
}

fn good(endpoint: &str) -> String {
    GOOD.replace("10.1.0.1", endpoint)
}

fn served(endpoint: &str) -> String {
    format!("good 10.96.0.1:80/TCP → {endpoint}")
}

#[test]
fn an_editor_that_renames_over_the_file_is_followed() {
    let dir = Dir::new();
    dir.write("good.yaml", &good("10.1.0.1"));
    for path in [dir.0.clone(), dir.0.join("good.yaml")] {
        dir.write("good.yaml", &good("10.1.0.1"));
        let mut followed = Followed::new(&dir, &path, false);
        followed.expect(&[&served("10.1.0.1")]);
        // The way of vim: the old file steps aside, the new one is written, the old one goes.
        for endpoint in ["10.1.0.2", "10.1.0.3"] {
            fs::rename(dir.0.join("good.yaml"), dir.0.join("good.yaml~")).unwrap();
            dir.write("good.yaml", &good(endpoint));
            fs::remove_file(dir.0.join("good.yaml~")).unwrap();
            followed.expect(&[&served(endpoint)]);
        }
        // The way of most others: a draft is renamed over it.
        for endpoint in ["10.1.0.4", "10.1.0.5"] {
            dir.write(".good.yaml.draft", &good(endpoint));
            fs::rename(dir.0.join(".good.yaml.draft"), dir.0.join("good.yaml")).unwrap();
            followed.expect(&[&served(endpoint)]);
        }
    }
}

/// The file has no sound text, or no name at all, while an editor saves it in its own time.
#[test]
fn nothing_is_withdrawn_while_a_file_is_saved_slowly() {
    let dir = Dir::new();
    dir.write("good.yaml", &good("10.1.0.1"));
    dir.write(
        "other.yaml",
        &good("10.1.0.1")
            .replace("good", "other")
            .replace("10.96.0.1", "10.96.0.9"),
    );
    let mut followed = Followed::new(&dir, &dir.0, false);
    followed.expect_that(|world| world.served().len() == 2, "both");
    for endpoint in ["10.1.0.2", "10.1.0.3"] {
        fs::rename(dir.0.join("good.yaml"), dir.0.join("good.yaml~")).unwrap();
        let mut file = fs::File::create(dir.0.join("good.yaml")).unwrap();
        // Longer than a reader waits for more of a burst, shorter than it waits for a writer.
        std::thread::sleep(Duration::from_millis(50));
        file.write_all(good(endpoint).as_bytes()).unwrap();
        drop(file);
        let end = Instant::now() + Duration::from_secs(10);
        while !followed.world.served().contains(&served(endpoint)) {
            assert_eq!(
                2,
                followed.world.served().len(),
                "{:?}",
                followed.world.served()
            );
            assert!(Instant::now() < end, "{:?}", followed.world.served());
            match followed.updates.try_recv() {
                Ok(update) => followed.world.take(update),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }
    // What is gone for good is missed all the same.
    fs::remove_file(dir.0.join("good.yaml")).unwrap();
    followed.expect_that(|world| world.served().len() == 1, "the other");
}

#[test]
fn a_config_map_whose_link_is_swapped_is_followed() {
    let dir = Dir::new();
    let publish = |version: &str, endpoint: &str| {
        fs::create_dir(dir.0.join(version)).unwrap();
        dir.write(&format!("{version}/good.yaml"), &good(endpoint));
        symlink(version, dir.0.join("..data_tmp")).unwrap();
        fs::rename(dir.0.join("..data_tmp"), dir.0.join("..data")).unwrap();
    };
    publish("..2026_1", "10.1.0.1");
    symlink("..data/good.yaml", dir.0.join("good.yaml")).unwrap();
    let mut directory = Followed::new(&dir, &dir.0, false);
    let mut file = Followed::new(&dir, &dir.0.join("good.yaml"), false);
    directory.expect(&[&served("10.1.0.1")]);
    file.expect(&[&served("10.1.0.1")]);
    for (version, endpoint) in [("..2026_2", "10.1.0.2"), ("..2026_3", "10.1.0.3")] {
        publish(version, endpoint);
        directory.expect(&[&served(endpoint)]);
        file.expect(&[&served(endpoint)]);
    }
}

#[test]
fn an_empty_directory_deletes_nothing_until_there_is_something_again() {
    let dir = Dir::new();
    dir.write("good.yaml", GOOD);
    let mut followed = Followed::new(&dir, &dir.0, false);
    followed.expect(&[&served("10.1.0.1")]);
    fs::remove_file(dir.0.join("good.yaml")).unwrap();
    followed.expect_message("(--allow-empty deletes it)");
    followed.expect(&[&served("10.1.0.1")]);
    // From here on the directory says what is served.
    dir.write("other.yaml", &GOOD.replace("good", "other"));
    followed.expect(&["other 10.96.0.1:80/TCP → 10.1.0.1"]);
}

#[test]
fn a_directory_that_vanishes_and_comes_back_is_followed_again() {
    let dir = Dir::new();
    let path = dir.0.join("manifests");
    fs::create_dir(&path).unwrap();
    dir.write("manifests/good.yaml", GOOD);
    let mut followed = Followed::new(&dir, &path, false);
    followed.expect(&[&served("10.1.0.1")]);
    fs::remove_dir_all(&path).unwrap();
    followed.expect_message("cannot be read: No such file or directory (os error 2)");
    followed.expect(&[&served("10.1.0.1")]);
    fs::create_dir(&path).unwrap();
    dir.write("manifests/good.yaml", &good("10.1.0.2"));
    followed.expect(&[&served("10.1.0.2")]);
    // Replaced by another one in one step, and changed after that.
    fs::create_dir(dir.0.join("new")).unwrap();
    dir.write("new/good.yaml", &good("10.1.0.3"));
    fs::rename(&path, dir.0.join("old")).unwrap();
    fs::rename(dir.0.join("new"), &path).unwrap();
    followed.expect(&[&served("10.1.0.3")]);
    dir.write("manifests/good.yaml", &good("10.1.0.4"));
    followed.expect(&[&served("10.1.0.4")]);
}

#[test]
fn allow_empty_deletes_everything() {
    let dir = Dir::new();
    let path = dir.0.join("manifests");
    fs::create_dir(&path).unwrap();
    dir.write("manifests/good.yaml", GOOD);
    let mut followed = Followed::new(&dir, &path, true);
    followed.expect(&[&served("10.1.0.1")]);
    fs::remove_file(path.join("good.yaml")).unwrap();
    followed.expect(&[]);
    dir.write("manifests/good.yaml", GOOD);
    followed.expect(&[&served("10.1.0.1")]);
    fs::remove_dir_all(&path).unwrap();
    followed.expect(&[]);
}

#[test]
fn a_slice_waits_for_its_service() {
    let dir = Dir::new();
    let (service, slice) = GOOD.split_once("---\n").unwrap();
    dir.write("slice.yaml", slice);
    let mut world = World::new(Source::new(dir.0.clone()), &dir.0, Limits::default());
    world.read();
    assert!(world.messages.is_empty() && world.served().is_empty());
    dir.write("service.yaml", service);
    world.read();
    assert_eq!([served("10.1.0.1")], *world.served());
}

#[test]
fn an_object_that_moves_to_another_file_is_not_touched() {
    let dir = Dir::new();
    for (from, to) in [("a.yaml", "b.yaml"), ("b.yaml", "a.yaml")] {
        dir.write(from, GOOD);
        let mut source = Source::new(dir.0.clone());
        assert_eq!(2, source.read_all().changes.len());
        fs::rename(dir.0.join(from), dir.0.join(to)).unwrap();
        let update = source.read_all();
        assert!(
            update.changes.is_empty() && update.problems.is_empty(),
            "{update:?}"
        );
    }
}

#[test]
fn a_stream_of_three_thousand_documents_is_served() {
    use std::fmt::Write as _;
    let dir = Dir::new();
    let mut text = String::new();
    for n in 0..3000 {
        writeln!(
            text,
            "---\napiVersion: v1\nkind: Service\nmetadata: {{name: s{n}}}\n\
             spec: {{clusterIP: 10.{}.{}.1, ports: [{{port: 80}}]}}",
            n / 256,
            n % 256
        )
        .unwrap();
    }
    dir.write("all.yaml", &text);
    let mut world = World::new(Source::new(dir.0.clone()), &dir.0, Limits::default());
    world.read();
    assert_eq!(3000, world.served().len());
}
