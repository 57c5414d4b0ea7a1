//! `monitor` and `flows --follow` at a running proxy: what they tell, and what it costs when nobody
//! reads it.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use xtask::lab::client::{Connection, Datagrams};
use xtask::lab::manifest::Service;
use xtask::lab::{Family, Host};

use super::world::{Paused, World, binary, wait_until};

/// A command that prints what happens, and what it has printed.
struct Listener {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Listener {
    /// Begins, and waits until the controller knows of it.
    fn new(world: &World, command: &[&str]) -> Self {
        let mut child = Command::new(binary())
            .args(command)
            .args(["-o", "json", "--control-socket"])
            .arg(world.control_socket())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut notes = BufReader::new(child.stderr.take().unwrap());
        let mut note = String::new();
        notes.read_line(&mut note).unwrap();
        assert!(note.starts_with("listening"), "{note}");
        let lines = Arc::default();
        let (out, own) = (child.stdout.take().unwrap(), Arc::clone(&lines));
        thread::spawn(move || read(BufReader::new(out), &own));
        Self { child, lines }
    }

    /// What was printed so far.
    fn lines(&self) -> Vec<Value> {
        self.lines.lock().unwrap().clone()
    }

    /// The next line that is not known yet, as soon as it is there.
    fn line(&self, index: usize) -> Value {
        wait_until("something is told", || {
            self.lines.lock().unwrap().len() > index
        });
        self.lines.lock().unwrap()[index].clone()
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn read(mut out: impl std::io::BufRead, lines: &Mutex<Vec<Value>>) {
    let mut line = String::new();
    while out.read_line(&mut line).unwrap_or_default() > 0 {
        lines
            .lock()
            .unwrap()
            .push(serde_json::from_str(&line).unwrap());
        line.clear();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have been ended before.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn expect(event: &Value, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(*value, event[name], "{name}: {event}");
    }
}

#[test]
fn new_and_closed_flows_and_dropped_packets_are_told_with_names() {
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let nobody = Service::new("nobody", 11);
    world.manifests.write_service(&nobody).unwrap();
    world.start_with(&service);
    let everything = Listener::new(&world, &["monitor"]);
    let flows = Listener::new(&world, &["flows", "--follow", "--service", "web"]);
    let drops = Listener::new(&world, &["monitor", "--drops", "--service", "nobody"]);
    let others = Listener::new(&world, &["monitor", "-n", "shop"]);

    let mut seen = 0;
    for family in Family::ALL {
        let target = service.target(family);
        let connection = Connection::open(&client, target).unwrap();
        let own = connection.local().unwrap().to_string();
        let endpoint = SocketAddr::new(pods[0].addresses.of(family), service.target_port);
        let of_web = [
            ("kind", "Event"),
            ("apiVersion", "kube-lottery.io/v1"),
            ("protocol", "TCP"),
            ("client", &own),
            ("frontend", &target.to_string()),
            ("endpoint", &endpoint.to_string()),
            ("namespace", "default"),
            ("service", "web"),
            ("port", "web-tcp"),
            ("node", "node1"),
        ];
        let event = everything.line(seen);
        expect(&event, &of_web);
        let opened = [
            ("event", "new"),
            ("reason", "opened"),
            ("hook", "tc ingress"),
        ];
        expect(&event, &opened);
        assert_eq!(super::world::device_of(&client), event["device"]);
        assert_eq!(event, flows.line(seen));
        connection.close().unwrap();
        let event = everything.line(seen + 1);
        expect(&event, &of_web);
        expect(&event, &[("event", "closed"), ("reason", "finished")]);
        assert_eq!(event, flows.line(seen + 1));
        seen += 2;
    }
    let target = nobody.target(Family::V4);
    let socket = send(&client, target, 1);
    let event = everything.line(seen);
    expect(
        &event,
        &[
            ("event", "dropped"),
            ("reason", "reject"),
            ("protocol", "UDP"),
            ("client", &socket.local_addr().unwrap().to_string()),
            ("frontend", &target.to_string()),
            ("service", "nobody"),
            ("port", "web-udp"),
        ],
    );
    assert_eq!(Value::Null, event["endpoint"]);
    assert_eq!(event, drops.line(0));
    assert_eq!((seen, 1), (flows.lines().len(), drops.lines().len()));
    assert!(others.lines().is_empty());

    world.stop();
    let mut everything = everything;
    assert_eq!(Some(2), everything.child.wait().unwrap().code());
}

/// A socket of a host, after it has sent so many datagrams.
fn send(host: &Host, target: SocketAddr, count: usize) -> UdpSocket {
    let any: SocketAddr = if target.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    }
    .parse()
    .unwrap();
    let open = || {
        let probe = UdpSocket::bind(any)?;
        probe.connect(target)?;
        let own = probe.local_addr()?.ip();
        Ok(UdpSocket::bind((own, 0))?)
    };
    let socket = host.namespace.enter(open).unwrap();
    for sent in 0..count {
        // Not connected: it is not told that nobody is there.
        socket.send_to(b"hello", target).unwrap();
        if sent % 2_000 == 1_999 {
            // About as often as the ring buffer is emptied, which has room for more than that.
            thread::sleep(Duration::from_millis(60));
        }
    }
    socket
}

#[test]
fn a_listener_that_does_not_read_costs_no_packet_and_is_told_what_it_has_missed() {
    const SENT: usize = 30_000;
    let Some(mut world) = World::new(1) else {
        return;
    };
    let client = world.lab.pod(1).unwrap();
    let (pods, _servers) = world.servers(1, 1);
    let service = Service::new("web", 10).with(world.endpoints(1, &pods));
    let nobody = Service::new("nobody", 11);
    world.manifests.write_service(&nobody).unwrap();
    world.manifests.write_service(&service).unwrap();
    let mut proxy = world.spawn(&["--max-events-per-second", "1000000"]);
    proxy.wait_until_ready().unwrap();
    world.keep(proxy);

    let deaf = Listener::new(&world, &["monitor", "--drops"]);
    let mut killed = Listener::new(&world, &["monitor"]);
    let hears = Listener::new(&world, &["flows", "--follow"]);
    let paused = Paused::new(deaf.child.id());
    killed.kill();
    let target = service.target(Family::V4);
    let mut open = Connection::open(&client, target).unwrap();
    send(&client, nobody.target(Family::V4), SENT);
    // Traffic goes on, and so does what others are told.
    open.echo("hello").unwrap();
    expect(&hears.line(0), &[("event", "new"), ("protocol", "TCP")]);
    wait_until("others are told what happens", || {
        let flow = Datagrams::open(&client, target).unwrap();
        flow.ask().unwrap();
        let is_it = |line: &Value| line["event"] == "new" && line["protocol"] == "UDP";
        hears.lines().iter().any(is_it)
    });
    let counted = |name: &str| {
        let status = world.json(&["status"]);
        let all = status["counters"].as_array().unwrap();
        let own = all.iter().find(|counter| counter["name"] == name);
        own.unwrap()["value"].as_u64().unwrap()
    };
    let rejected = counted("reject");
    // The kernel may have lost some on their way, but no more for being told.
    assert!(rejected > SENT as u64 * 9 / 10, "{rejected}");

    paused.resume();
    let account = || {
        let (mut told, mut lost) = (0, [0; 3]);
        for line in deaf.lines() {
            if line["kind"] == "Event" {
                told += 1;
                continue;
            }
            for (sum, name) in lost.iter_mut().zip(["suppressed", "ringFull", "unread"]) {
                *sum += line[name].as_u64().unwrap();
            }
        }
        (told, lost)
    };
    wait_until("every packet is told of or counted as lost", || {
        let (told, lost) = account();
        told + lost.iter().sum::<u64>() >= rejected
    });
    let (told, lost) = account();
    // What found no room in the ring buffer may have been new flows, which others listen to.
    let most = rejected + counted("new-flow");
    assert!(
        told + lost.iter().sum::<u64>() <= most,
        "{told}, {lost:?} of {most}"
    );
    // Whether its queue or the ring buffer had no room is a matter of how busy the machine is.
    assert!(
        told > 1_000 && lost.iter().sum::<u64>() > 1_000,
        "{told}, {lost:?}"
    );
}
