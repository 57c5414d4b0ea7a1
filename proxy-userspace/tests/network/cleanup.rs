//! Nothing is left of a controller that is not wanted any more.

use std::process::Output;

use aya::maps::MapInfo;
use aya::programs::{SchedClassifier, TcAttachType};
use kube_lottery::dataplane::cleanup;
use xtask::lab::Host;
use xtask::lab::manifest::Service;

use super::nftables::{listed, nft};
use super::pinned::place;
use super::world::{World, binary, wait_until};

#[test]
fn cleanup_leaves_nothing_behind() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let (pods, _servers) = world.servers(1, 2);
    let node = world.lab.node(1);
    let names = devices(&node);
    assert_eq!(3, names.len(), "{names:?}");
    assert_eq!(0, programs(&node, &names));
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let chains = super::accepts::CHAINS;
    nft(&node, chains);
    world.start_with(&service);

    let refused = run(&node, &["cleanup"]);
    assert_eq!(Some(3), refused.status.code(), "{refused:?}");
    world.kill();
    assert_eq!(6, programs(&node, &names));
    let folder = place(&node).pins();
    let maps: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        // The names of links have a dash.
        .filter(|path| !path.file_name().unwrap().to_str().unwrap().contains('-'))
        .map(|path| MapInfo::from_pin(path).unwrap().id())
        .collect();
    assert!(maps.len() > 15, "{maps:?}");

    let dry = run(&node, &["cleanup", "--dry-run"]);
    let said = String::from_utf8(dry.stdout).unwrap();
    // Six links, the maps, and the folders of the layout and the namespace, and perhaps of all.
    let all = cleanup(&place(&node)).len();
    let least = 6 + maps.len() + 2;
    assert!((least..=least + 1).contains(&all), "{said}");
    // Tables, and rules in tables of others.
    assert_eq!(all + 4, said.lines().count(), "{said}");
    assert!(
        said.contains("would remove nftables table ip kube-lottery\n"),
        "{said}"
    );
    assert!(
        said.contains("would remove nftables table ip6 kube-lottery\n"),
        "{said}"
    );
    let rules = "would remove nftables rules of kube-lottery in ip filter FORWARD\n";
    assert!(said.contains(rules), "{said}");
    assert_eq!([2, 2], super::accepts::accepts(&node));
    assert_ne!("", listed(&node));
    assert_eq!(6, programs(&node, &names));

    assert!(run(&node, &["cleanup"]).status.success());
    assert_eq!(0, programs(&node, &names));
    assert_eq!("", listed(&node));
    assert_eq!([0, 0], super::accepts::accepts(&node));
    assert!(!place(&node).folder().exists());
    wait_until("the kernel has freed the maps", || {
        maps.iter().all(|id| MapInfo::from_id(*id).is_err())
    });
    // Where pins are lost, tables are found all the same.
    nft(&node, "add table ip kube-lottery");
    let rest = run(&node, &["cleanup"]);
    let said = String::from_utf8(rest.stdout).unwrap();
    assert_eq!("removed nftables table ip kube-lottery\n", said);
    let again = run(&node, &["cleanup"]);
    assert!(again.status.success());
    assert_eq!(
        "nothing to remove\n",
        String::from_utf8(again.stdout).unwrap()
    );
}

pub(super) fn run(node: &Host, args: &[&str]) -> Output {
    let mut command = node.namespace.command(&binary().display().to_string());
    command.args(args).output().unwrap()
}

fn devices(node: &Host) -> Vec<String> {
    let output = node
        .namespace
        .command("ip")
        .args(["-brief", "link"])
        .output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    let names = names.filter_map(|name| name.split('@').next());
    names
        .filter(|name| *name != "lo")
        .map(str::to_owned)
        .collect()
}

/// How many programs are attached to these devices.
fn programs(node: &Host, devices: &[String]) -> usize {
    let count = || {
        let mut count = 0;
        for device in devices {
            for direction in [TcAttachType::Ingress, TcAttachType::Egress] {
                count += SchedClassifier::query_tcx(device, direction)?.1.len();
            }
        }
        Ok(count)
    };
    node.namespace.enter(count).unwrap()
}
