//! HTTP on the control socket.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use super::answer::{AnswerError, Answers};
use super::api::{self, Failure};
use super::body::Body;
use super::flows::FlowQuery;
use super::listing::Scope;
use super::monitor::Wanted;
use super::socket::ControlSocket;
use super::top::TopQuery;
use crate::metrics::CONTENT_TYPE as METRICS;

/// How long a peer may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait where the process has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) async fn serve(socket: &ControlSocket, answers: &Answers) {
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = socket.accept() => stream,
            Some(_) = connections.join_next() => continue,
        };
        match stream {
            Ok(stream) => {
                let answers = answers.clone();
                connections.spawn(converse(stream, answers));
            }
            Err(error) => {
                warn!(%error, "the control socket accepts no connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn converse(stream: tokio::net::UnixStream, answers: Answers) {
    let service = service_fn(move |request| {
        let answers = answers.clone();
        async move { Ok::<_, Infallible>(respond(&request, &answers).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "a conversation on the control socket broke off");
    }
}

async fn respond(request: &Request<Incoming>, answers: &Answers) -> Response<Body> {
    if request.method() != Method::GET {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "only GET is served");
    }
    let query = request.uri().query().unwrap_or_default();
    let scope = Scope::from_query(query);
    let full = |body| Either::Left(Full::new(body));
    let mut form = JSON;
    let answer = match request.uri().path() {
        "/v1/status" => answers
            .status(scope.flows)
            .await
            .map(|all| full(body(&all))),
        "/v1/services" => answers.services(scope).await.map(|all| full(body(&all))),
        "/v1/endpoints" => answers.endpoints(scope).await.map(|all| full(body(&all))),
        "/v1/devices" => Ok(full(body(&answers.devices()))),
        "/v1/explain" => answers.explain(query).await.map(|all| full(body(&all))),
        "/v1/why" => answers.why(query).await.map(|all| full(body(&all))),
        "/v1/counters" => answers.counters().await.map(|all| full(body(&all))),
        "/v1/flows" => match FlowQuery::from_query(query) {
            Ok(query) => answers.flows(&query).await.map(Either::Right),
            Err(error) => return failure(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        "/v1/monitor" => match Wanted::from_query(query) {
            Ok(wanted) => answers.monitor(wanted).await.map(Either::Right),
            Err(error) => return failure(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        "/v1/fairness" => answers.fairness(&scope).await.map(|all| full(body(&all))),
        "/v1/top" => match TopQuery::from_query(query) {
            Ok(query) => answers.top(scope, query).await.map(|all| full(body(&all))),
            Err(error) => return failure(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        "/v1/metrics" => {
            form = METRICS;
            answers.metrics().await.map(|text| full(text.into()))
        }
        path => {
            let known = format!(
                "there is no {path}; there are /v1/status, /v1/services, /v1/endpoints, \
                /v1/devices, /v1/counters, /v1/flows, /v1/monitor, /v1/explain, /v1/why, \
                /v1/fairness, /v1/top and /v1/metrics"
            );
            return failure(StatusCode::NOT_FOUND, &known);
        }
    };
    match answer {
        Ok(body) => response(StatusCode::OK, form, body),
        Err(error @ AnswerError::Stopping) => {
            failure(StatusCode::SERVICE_UNAVAILABLE, &error.to_string())
        }
        Err(error @ AnswerError::Question(_)) => {
            failure(StatusCode::BAD_REQUEST, &error.to_string())
        }
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn failure(status: StatusCode, message: &str) -> Response<Body> {
    let failure = Failure {
        kind: api::Kind::new("Failure"),
        message: message.to_owned(),
    };
    response(status, JSON, Either::Left(Full::new(body(&failure))))
}

fn body(answer: &impl Serialize) -> Bytes {
    // Strings, numbers and lists of them always have a JSON form.
    serde_json::to_vec(answer).unwrap_or_default().into()
}

fn response(status: StatusCode, form: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let form = HeaderValue::from_static(form);
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

const JSON: &str = "application/json";
