use std::time::Duration;

use super::*;
use crate::node::{Bridge, Framing, OnLink, Reason};

fn device(index: u32, class: Class, incarnation: u64) -> Device {
    Device {
        index,
        name: format!("d{index}"),
        kind: Some("veth".into()),
        framing: Framing::Ethernet,
        class,
        incarnation,
        bridge: None,
        is_inside: false,
    }
}

fn devices(wanted: &[Device]) -> Devices {
    Devices {
        wanted: wanted
            .iter()
            .map(|device| (device.index, device.clone()))
            .collect(),
        ..Devices::default()
    }
}

/// All steps until nothing is left to do.
fn steps(standing: &mut Standing, wanted: &[Device]) -> Vec<Step> {
    standing.follow(devices(wanted));
    let mut steps = Vec::new();
    while let Some(step) = standing.next_step(Instant::now()) {
        match &step {
            Step::Attach(device) => standing.attached(device.clone(), Mode::Tcx),
            Step::Detach(index) => drop(standing.detached(*index)),
        }
        steps.push(step);
    }
    steps
}

#[test]
fn uplinks_come_first_then_pods_in_order_of_appearance() {
    let (old, new) = (device(9, Class::Pod, 1), device(2, Class::Pod, 2));
    let uplink = device(3, Class::Uplink, 3);
    let expected = [&uplink, &old, &new].map(|device| Step::Attach(device.clone()));
    assert_eq!(
        expected,
        *steps(&mut Standing::default(), &[old, new, uplink])
    );
}

#[test]
fn a_device_that_came_back_is_attached_anew() {
    let mut standing = Standing::default();
    let (before, after) = (device(2, Class::Pod, 1), device(2, Class::Pod, 5));
    steps(&mut standing, &[before]);
    let expected = [Step::Detach(2), Step::Attach(after.clone())];
    assert_eq!(expected, *steps(&mut standing, &[after]));
}

#[test]
fn a_new_name_costs_nothing() {
    let mut standing = Standing::default();
    let before = device(2, Class::Pod, 1);
    steps(&mut standing, std::slice::from_ref(&before));
    let after = Device {
        name: "other".into(),
        ..before
    };
    assert!(steps(&mut standing, &[after]).is_empty());
    assert_eq!("other", standing.list()[0].name);
}

#[test]
fn a_device_that_comes_to_be_inside_is_told_so_in_place() {
    let mut standing = Standing::default();
    let before = device(2, Class::Pod, 1);
    steps(&mut standing, std::slice::from_ref(&before));
    let after = Device {
        is_inside: true,
        ..before
    };
    let expected = [Step::Attach(after.clone())];
    assert_eq!(expected, *steps(&mut standing, &[after]));
}

#[test]
fn a_new_class_is_attached_without_detaching() {
    let mut standing = Standing::default();
    steps(&mut standing, &[device(2, Class::Pod, 1)]);
    let after = device(2, Class::Uplink, 1);
    assert_eq!(
        [Step::Attach(after.clone())],
        *steps(&mut standing, std::slice::from_ref(&after))
    );
    assert!(steps(&mut standing, &[after]).is_empty());
}

#[test]
fn a_pod_that_is_put_on_a_bridge_is_not_detached_in_between() {
    let mut standing = Standing::default();
    steps(&mut standing, &[device(2, Class::Pod, 1)]);
    let mut after = device(2, Class::PodPort, 1);
    for network in [None, Some("10.244.1.1/24")] {
        let on_link = |text: &str| OnLink {
            device: 1,
            address: text.parse().unwrap(),
        };
        after.bridge = Some(Bridge {
            mac: [2, 0, 0, 0, 0, 1],
            networks: network.map(on_link).into_iter().collect(),
        });
        assert_eq!(
            [Step::Attach(after.clone())],
            *steps(&mut standing, std::slice::from_ref(&after))
        );
    }
}

#[test]
fn what_is_refused_waits_unless_it_changes() {
    let mut standing = Standing::default();
    let own = device(2, Class::Pod, 1);
    standing.follow(devices(std::slice::from_ref(&own)));
    let again = Instant::now() + Duration::from_mins(1);
    standing.refused(own.clone(), Some("no".into()), true, again);
    assert_eq!(None, standing.next_step(Instant::now()));
    assert_eq!(Some(again), standing.next_try());
    assert_eq!(Some(Step::Attach(own)), standing.next_step(again));
    let other = device(2, Class::Uplink, 1);
    standing.follow(devices(std::slice::from_ref(&other)));
    assert_eq!(
        Some(Step::Attach(other)),
        standing.next_step(Instant::now())
    );
}

#[test]
fn every_device_is_told_of_with_its_state() {
    let mut standing = Standing::default();
    let uplink = device(5, Class::Uplink, 1);
    let all = [
        device(9, Class::Pod, 2),
        device(7, Class::Pod, 3),
        device(6, Class::Pod, 4),
    ];
    let mut known = devices(&all);
    known.wanted.insert(5, uplink.clone());
    let bridge = Bystander {
        index: 3,
        name: "br0".into(),
        kind: Some("bridge".into()),
        reason: Reason::SeenAtPorts,
    };
    known.others.insert(3, bridge);
    standing.follow(known);
    standing.attached(uplink, Mode::Tcx);
    let new = standing.warned(5, vec!["beware".into()]);
    assert_eq!(["beware"], *new);
    assert!(standing.warned(5, vec!["beware".into()]).is_empty());
    let again = Instant::now();
    standing.refused(all[0].clone(), Some("no".into()), true, again);
    standing.refused(all[1].clone(), Some("EIO".into()), false, again);
    let told: Vec<_> = standing
        .list()
        .into_iter()
        .map(|told| (told.index, told.state, told.reason.unwrap_or_default()))
        .collect();
    let ports = Reason::SeenAtPorts.to_string();
    let expected = [
        (3, DeviceState::LeftAlone, ports),
        (5, DeviceState::Attached, String::new()),
        (6, DeviceState::Pending, String::new()),
        (7, DeviceState::Failed, "EIO".into()),
        (9, DeviceState::Refused, "no".into()),
    ];
    assert_eq!(expected, *told);
    assert_eq!(["beware"], *standing.list()[1].warnings);
}
