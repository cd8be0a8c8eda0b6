//! Requests of agents that are handed to a host, with ids that no two processes share.
//!
//! Agents number their requests anew in each process. An answer that a host gives late, to a
//! question of a process that is gone, would be taken by the next one for the answer to another.
//! Fed by the relays. Invariant: until a process was released once, every line passes as it came;
//! after that a host's answer reaches the process that asked, or nobody.

use serde_json::value::RawValue;

use super::Pass;
use super::rpc::{Id, with_id};

/// See the module. What the host knows a request by tells everything, so nothing is remembered.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Processes before this one.
    former: u64,
}

impl Handed {
    /// By a process that comes after so many.
    pub(super) fn after(former: u64) -> Self {
        Self { former }
    }

    /// A line of the agent's with the id of a request of its own; `part` is that id in the line.
    pub(super) fn toward_host(&self, line: &str, part: &RawValue) -> Pass {
        if self.former == 0 {
            return Pass::AsIs;
        }
        let known = Id::Text(self.prefix() + part.get());
        instead(with_id(line, part, &known))
    }

    /// An answer of the host's; `part` is its id in the line.
    pub(super) fn toward_agent(&self, line: &str, part: &RawValue, id: &Id) -> Pass {
        if self.former == 0 {
            return Pass::AsIs;
        }
        let own = match id {
            Id::Text(known) => known.strip_prefix(&self.prefix()),
            Id::Number(_) => None,
        };
        match own.and_then(|own| serde_json::from_str(own).ok()) {
            Some(own) => instead(with_id(line, part, &own)),
            // Whoever asked is gone.
            None => Pass::Swallowed,
        }
    }

    fn prefix(&self) -> String {
        format!("drowse-{}-", self.former)
    }
}

fn instead(mut line: Vec<u8>) -> Pass {
    line.push(b'\n');
    Pass::Instead(line)
}

#[cfg(test)]
mod tests {
    use super::super::rpc::message;
    use super::*;

    fn part(line: &str) -> &RawValue {
        let found = message(line, |_| true).expect("readable");
        found.and_then(|it| it.id).expect("it has an id")
    }

    /// D16: a late answer to a question of a process that is gone answers no question of the next.
    #[test]
    fn answers_reach_the_process_that_asked() {
        let ask = r#"{"id":0,"method":"may/i"}"#;
        let yes = r#"{"id":0,"result":"yes"}"#;
        let zero = Id::Number(0);
        let first = Handed::default();
        assert_eq!(first.toward_host(ask, part(ask)), Pass::AsIs);
        assert_eq!(first.toward_agent(yes, part(yes), &zero), Pass::AsIs);

        let next = Handed::after(1);
        let asked = b"{\"id\":\"drowse-1-0\",\"method\":\"may/i\"}\n".to_vec();
        assert_eq!(next.toward_host(ask, part(ask)), Pass::Instead(asked));
        assert_eq!(
            next.toward_agent(yes, part(yes), &zero),
            Pass::Swallowed,
            "late"
        );
        let cancel = r#"{"method":"cancel","id":0}"#;
        let about = b"{\"method\":\"cancel\",\"id\":\"drowse-1-0\"}\n".to_vec();
        assert_eq!(next.toward_host(cancel, part(cancel)), Pass::Instead(about));
        let new = Id::Text("drowse-1-0".to_owned());
        let no = r#"{"id":"drowse-1-0","result":"no"}"#;
        let answered = b"{\"id\":0,\"result\":\"no\"}\n".to_vec();
        assert_eq!(
            next.toward_agent(no, part(no), &new),
            Pass::Instead(answered)
        );
        let text = r#"{"id":"a\"b","method":"may/i"}"#;
        let Pass::Instead(line) = next.toward_host(text, part(text)) else {
            panic!("it is told apart")
        };
        let line = String::from_utf8(line).expect("it is JSON");
        let known = message(line.trim_end(), |_| true).expect("readable");
        let known = known.and_then(|it| it.id()).expect("it has an id");
        let back = next.toward_agent(line.trim_end(), part(line.trim_end()), &known);
        assert_eq!(back, Pass::Instead(format!("{text}\n").into_bytes()));
    }
}
