//! Programs of others at the same devices, before and after ours.

use serde_json::Value;
use xtask::lab::Host;
use xtask::lab::client::Connection;

use super::foreign::{EGRESS, FIRST, Foreign, INGRESS, LAST, NEXT, OK};
use super::moves::{expect_served, programs_at, world};
use super::pinned::place;
use super::traffic::during;
use super::world::{World, device_of, wait_until};

#[test]
fn others_come_before_ours_at_ingress_and_after_it_at_egress() {
    let Some((world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let [own_in] = hook(&node, &device, INGRESS)[..] else {
        panic!("only ours is there");
    };
    let [own_eg] = hook(&node, &device, EGRESS)[..] else {
        panic!("only ours is there");
    };
    let ((), tally) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for _ in 0..3 {
                let (one, other) = (Foreign::new("one", NEXT), Foreign::new("other", NEXT));
                // Where they are in the way, and where they are not.
                let _links = [
                    one.attach(&node, &device, INGRESS, LAST),
                    other.attach(&node, &device, INGRESS, FIRST),
                    one.attach(&node, &device, EGRESS, FIRST),
                    other.attach(&node, &device, EGRESS, LAST),
                ];
                wait_until("ours is last at ingress and first at egress", || {
                    // Witnesses come and go beside it.
                    hook(&node, &device, INGRESS).last() == Some(&own_in)
                        && hook(&node, &device, EGRESS).first() == Some(&own_eg)
                        && hook(&node, &device, EGRESS).len() == 3
                });
            }
        },
    );
    assert!(tally.connections.into_inner() > 0);
    wait_until("no witness is left", || {
        hook(&node, &device, INGRESS) == [own_in] && hook(&node, &device, EGRESS) == [own_eg]
    });
    let pins = pins(&node);
    assert!(pins.iter().all(|pin| !pin.contains(['~', 'r'])), "{pins:?}");
    assert_eq!(0, world.look(&["status"]).code);
    world.assert_unnoticed(&[&service]);
}

#[test]
fn a_program_that_hides_packets_is_gone_before() {
    let Some((mut world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let hiding = Foreign::new("hiding", OK);
    let link = hiding.attach(&node, &device, INGRESS, FIRST);
    wait_until("the Service is reached again", || {
        xtask::lab::Family::ALL
            .iter()
            .all(|family| Connection::open(&client, service.target(*family)).is_ok())
    });
    expect_served(&client, &service);
    let is_told = |told: &Value| told["warnings"].to_string().contains("hiding");
    world.wait_for_device(&device, is_told);
    let status = world.look(&["status"]);
    assert_eq!(1, status.code, "{}", status.text);
    assert!(status.text.contains("hiding"), "{}", status.text);

    // The next controller knows that it must not go back.
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            for _ in 0..3 {
                world.kill();
                world.start();
                world.wait_for_device(&device, is_told);
            }
        },
    );
    assert_eq!(2, hook(&node, &device, INGRESS).len());

    // One that hides nothing is not gone before.
    let harmless = Foreign::new("harmless", NEXT);
    let ((), _) = during(
        &client,
        &service,
        |_| true,
        |_| {
            drop(link);
            let _link = harmless.attach(&node, &device, INGRESS, FIRST);
            wait_until("it is in its usual place", || {
                world.look(&["status"]).code == 0
                    && !pins(&node).iter().any(|pin| pin.contains("reversed"))
            });
            // Long enough for a witness that sees nothing to say so.
            for _ in 0..5 {
                std::thread::sleep(std::time::Duration::from_secs(1));
                assert_eq!(0, world.look(&["status"]).code);
            }
        },
    );
    expect_served(&client, &service);
}

#[test]
fn agents_that_translate_services_are_left_to_it() {
    let Some((mut world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let agent = Foreign::new("cil_from_contai", NEXT);

    // Where ours is already: it stays, and nothing is moved.
    let device = device_of(&client);
    let before = hook(&node, &device, INGRESS);
    let link = agent.attach(&node, &device, INGRESS, LAST);
    let told = world.wait_for_device(&device, |told| {
        told["warnings"].to_string().contains("Cilium")
    });
    assert_eq!("attached", told["state"]);
    assert_eq!(before, hook(&node, &device, INGRESS)[..1]);
    expect_served(&client, &service);
    // Over a restart as well.
    world.kill();
    world.start();
    world.wait_for_device(&device, |told| {
        told["state"] == "attached" && told["warnings"].to_string().contains("Cilium")
    });
    drop(link);
    wait_until("all is well without it", || {
        world.look(&["status"]).code == 0
    });

    // Where it comes first.
    world.kill();
    let other = world.lab.pod(1).unwrap();
    let device = device_of(&other);
    let link = agent.attach(&node, &device, INGRESS, LAST);
    world.start();
    let told = world.wait_for_device(&device, |told| told["state"] == "refused");
    let reason = told["reason"].as_str().unwrap();
    assert!(
        reason.contains("Cilium") && reason.contains("cil_from"),
        "{reason}"
    );
    assert_eq!(1, world.look(&["status"]).code);
    assert_eq!(1, programs_at(&node, &device).len());
    drop(link);
    world.wait_for_device(&device, |told| told["state"] == "attached");
    expect_served(&other, &service);
}

#[test]
fn a_place_that_another_insists_on_is_fought_for_only_so_long() {
    let Some((world, client, service)) = world() else {
        return;
    };
    let node = world.lab.node(1);
    let device = device_of(&client);
    let mut links = Vec::new();
    // Every one that is gone past makes another come.
    let insists = Foreign::new("insists", NEXT);
    let is_told = |world: &World| {
        let told = world.device(&device).unwrap();
        told["warnings"].to_string().contains("insists")
    };
    wait_until("it is told that they quarrel", || {
        let own = world.device(&device).unwrap();
        assert_eq!("attached", own["state"]);
        if hook(&node, &device, EGRESS).first() != links.last().map(|(_, id)| id) {
            links.clear();
            let link = insists.attach(&node, &device, EGRESS, FIRST);
            links.push((link, hook(&node, &device, EGRESS)[0]));
        }
        is_told(&world)
    });
    // It translates from the other place as well.
    expect_served(&client, &service);
}

/// Numbers of the programs at a hook, in their order.
fn hook(host: &Host, device: &str, hook: u32) -> Vec<u32> {
    let [ingress, egress] = super::moves::hooks(host, device);
    if hook == INGRESS { ingress } else { egress }
}

fn pins(node: &Host) -> Vec<String> {
    let pins = std::fs::read_dir(place(node).pins()).unwrap();
    let names = pins.map(|pin| pin.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains('-')).collect()
}
