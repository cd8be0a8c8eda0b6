//! The mock model server without an agent.

use std::io::{Read, Write};
use std::net::TcpStream;

use drowse_tests::MockModel;
use serde_json::{Value, json};

fn post(model: &MockModel, path: &str, body: &Value) -> String {
    let mut stream =
        TcpStream::connect(("127.0.0.1", model.port())).expect("the mock model answers");
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nx-session-id: s1\r\ncontent-length: {}",
        body.len()
    );
    stream
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .expect("the mock model answers");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("the mock model answers");
    answer
}

#[test]
fn mock_model_speaks_its_apis_and_logs_what_it_was_told() {
    let model = MockModel::start();
    let body =
        json!({ "stream": true, "messages": [{ "role": "user", "content": "MOCK:say hi" }] });
    let anthropic = post(&model, "/v1/messages?beta=true", &body);
    assert!(anthropic.contains("event: message_stop") && anthropic.contains("SAID hi"));
    let chat = post(&model, "/v1/chat/completions", &body);
    assert!(chat.contains("data: [DONE]") && chat.contains("SAID hi (user turns seen: 1)"));
    let whole = json!({ "messages": body["messages"] });
    assert!(post(&model, "/v1/chat/completions", &whole).contains("chat.completion\""));
    assert!(post(&model, "/v1/messages/count_tokens", &whole).contains("input_tokens"));
    let input = json!({ "stream": true, "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "MOCK:bash ls" }] },
    ], "tools": [{ "type": "function", "name": "exec_command" }] });
    let call = post(&model, "/v1/responses", &input);
    assert!(call.contains("event: response.completed") && call.contains("function_call"));
    assert!(post(&model, "/v1/nothing", &whole).starts_with("HTTP/1.1 404"));
    let request = model.wait_for_request("hi", |request| request.has_user("MOCK:say hi"));
    assert_eq!(
        request.session_headers,
        [("x-session-id".to_owned(), "s1".to_owned())]
    );
    assert_eq!(model.requests().len(), 6);
}

#[test]
fn mock_model_stops_in_the_middle_of_a_slow_answer() {
    let model = MockModel::start();
    let mut stream = TcpStream::connect(("127.0.0.1", model.port())).unwrap();
    let body =
        json!({ "stream": true, "messages": [{ "role": "user", "content": "MOCK:slow 600" }] });
    let body = body.to_string();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    model.wait_for_request("slow", |request| request.has_user("MOCK:slow"));
    drop(model);
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    assert!(!answer.contains("message_stop"));
}
