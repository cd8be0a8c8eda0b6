//! What each method of a socket does.
//!
//! Fed by sockets once policy lets a call run. Asks the daemon through its [`Front`] as the routes
//! do, and decides nothing. Reading is never activity (behaviour 19).

use std::sync::Arc;

use drowse_messages::{
    Accepted, AnswerAsk, AnswerCall, Failure, FailureCode, Interrupt, MessageCall, MessageId,
    MessagesCall, Method, Order, OutcomeCall, Prompt, Prompted, RecordOutcome, SavedMessage,
    SendMessage, SessionEvent, SessionId, Stop, StopCall, StopHow, Wake, WakeCall, Who,
};
use drowse_policy::connections::CallKind;
use serde::Serialize;

use super::super::front::{Front, Live};
use super::super::inbox::{self, KEY_BYTES_MAX, MESSAGE_BYTES_MAX};
use super::super::routes::LIST_MAX;
use super::words::Request;

/// 32 MiB in one answer, as over HTTP: a page of long messages is asked for in smaller pages.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// 20 messages unless asked otherwise: a screen of them.
const MESSAGES_DEFAULT: usize = 20;

/// 256 events wait for whoever follows a prompt; of what is lost then, the store knows the end.
const FOLLOWED_EVENTS_MAX: usize = 256;

/// The answer of a call, as JSON.
pub(super) type Outcome = Result<String, Box<Failure>>;

/// What sort of call a method is.
pub(super) const fn kind(method: Method) -> CallKind {
    match method {
        Method::Prompt => CallKind::Prompt,
        Method::Interrupt
        | Method::Answer
        | Method::Wake
        | Method::Cancel
        | Method::Retry
        | Method::RecordOutcome => CallKind::Act,
        Method::Release | Method::Stop => CallKind::End,
        Method::Hello
        | Method::Show
        | Method::Messages
        | Method::Message
        | Method::Subscribe
        | Method::Ping
        | Method::Close => CallKind::Read,
    }
}

/// Carries one call out.
pub(super) async fn run(
    daemon: Arc<dyn Front>,
    session: SessionId,
    by: Who,
    mut request: Request,
) -> Outcome {
    match request.method {
        Method::Prompt => {
            let prompt: Prompt = request.params()?;
            words(&say(&*daemon, session, prompt, by).await?)
        }
        Method::Show => words(&daemon.report(session).await.map_err(refused)?),
        Method::Messages => {
            let wanted: MessagesCall = request.params()?;
            let limit = wanted.limit.unwrap_or(MESSAGES_DEFAULT);
            if !(1..=LIST_MAX).contains(&limit) {
                let detail = format!("limit: {limit} is not between 1 and {LIST_MAX}");
                return Err(invalid(detail));
            }
            words(&daemon.messages(session, limit).await.map_err(refused)?)
        }
        Method::Message => {
            let wanted: MessageCall = request.params()?;
            let saved = inbox::of_session(&*daemon, session, wanted.message).await;
            words(&saved.map_err(refused)?)
        }
        Method::Cancel => {
            let wanted: MessageCall = request.params()?;
            let cancelled = inbox::cancel(&*daemon, session, wanted.message, by).await;
            words(&cancelled.map_err(refused)?)
        }
        Method::Retry => {
            let wanted: MessageCall = request.params()?;
            let queued = inbox::retry(&*daemon, session, wanted.message).await;
            words(&queued.map_err(refused)?)
        }
        Method::Interrupt
        | Method::Answer
        | Method::Wake
        | Method::RecordOutcome
        | Method::Release
        | Method::Stop => {
            let order = order(&mut request, by)?;
            daemon.order(session, order).await.map_err(refused)?;
            Ok("{}".to_owned())
        }
        // What remains is answered where the socket is.
        Method::Hello | Method::Subscribe | Method::Ping | Method::Close => Ok("{}".to_owned()),
    }
}

fn order(request: &mut Request, by: Who) -> Result<Order, Box<Failure>> {
    let end = |how, by| Order::Stop(Stop { how, by });
    Ok(match request.method {
        Method::Answer => {
            let AnswerCall { id, answer } = request.params()?;
            Order::Answer(AnswerAsk { id, answer, by })
        }
        Method::Wake => {
            let WakeCall { fresh } = request.params()?;
            Order::Wake(Wake { fresh, by })
        }
        Method::Release => end(StopHow::Release, by),
        Method::Stop => {
            let wanted: StopCall = request.params()?;
            let how = if wanted.kept {
                StopHow::StopAll
            } else {
                StopHow::Stop
            };
            end(how, by)
        }
        Method::Interrupt => Order::Interrupt(Interrupt { by }),
        Method::RecordOutcome => {
            let OutcomeCall { text } = request.params()?;
            Order::RecordOutcome(RecordOutcome { text, by })
        }
        Method::Hello
        | Method::Prompt
        | Method::Cancel
        | Method::Retry
        | Method::Show
        | Method::Messages
        | Method::Message
        | Method::Subscribe
        | Method::Ping
        | Method::Close => return Err(invalid(format!("{} is no order", request.method.code()))),
    })
}

async fn say(
    daemon: &dyn Front,
    session: SessionId,
    prompt: Prompt,
    by: Who,
) -> Result<Prompted, Box<Failure>> {
    let Prompt {
        text,
        key,
        accepted,
        priority,
    } = prompt;
    if text.is_empty() || text.len() > MESSAGE_BYTES_MAX {
        let detail = format!("text: has not between 1 and {MESSAGE_BYTES_MAX} bytes");
        return Err(invalid(detail));
    }
    let is_key = |key: &String| (1..=KEY_BYTES_MAX).contains(&key.len()) && key.is_ascii();
    if !key.as_ref().is_none_or(is_key) {
        let detail = format!("key: is not 1 to {KEY_BYTES_MAX} ASCII characters");
        return Err(invalid(detail));
    }
    // Subscribed before it is accepted, so that its end is not missed.
    let live = daemon.subscribe(FOLLOWED_EVENTS_MAX, Some(session));
    let message = SendMessage {
        text,
        key,
        priority,
        by,
    };
    let sent = daemon.send(session, message).await.map_err(refused)?;
    if accepted {
        drop(live);
        let saved = daemon.message(sent.message).await.map_err(refused)?;
        return Ok(prompted(saved, sent));
    }
    end_of(daemon, live, sent).await
}

/// Waits until the message has its final state.
async fn end_of(
    daemon: &dyn Front,
    mut live: Box<dyn Live>,
    sent: Accepted,
) -> Result<Prompted, Box<Failure>> {
    // A repeat may have ended long ago.
    let mut ask = sent.duplicate;
    loop {
        if std::mem::take(&mut ask) {
            let saved = daemon.message(sent.message).await.map_err(refused)?;
            if saved.state.is_final() {
                return Ok(prompted(saved, sent));
            }
        }
        let Some(event) = live.next().await else {
            let detail = "the daemon ends; the message is on disk";
            return Err(Box::new(Failure::new(FailureCode::Unanswered, detail)));
        };
        if let SessionEvent::Gap { .. } = event.what {
            ask = true;
        } else if let SessionEvent::Removed = event.what {
            return Err(removed(sent.message));
        } else if let SessionEvent::MessageChanged {
            message,
            state,
            text,
        } = event.what
            && message == sent.message
            && state.is_final()
        {
            return Ok(Prompted {
                message,
                duplicate: sent.duplicate,
                state,
                answer: text,
            });
        }
    }
}

fn removed(message: MessageId) -> Box<Failure> {
    let detail = format!("the session of message {message} was removed");
    Box::new(Failure::new(FailureCode::NoSuchSession, detail))
}

fn prompted(saved: SavedMessage, sent: Accepted) -> Prompted {
    Prompted {
        message: saved.id,
        duplicate: sent.duplicate,
        state: saved.state,
        answer: saved.answer,
    }
}

fn refused(refusal: drowse_messages::Refusal) -> Box<Failure> {
    Box::new(refusal.into())
}

fn invalid(detail: String) -> Box<Failure> {
    Box::new(Failure::new(FailureCode::Invalid, detail))
}

/// A result as JSON, unless it is longer than a client takes.
pub(super) fn words(result: &impl Serialize) -> Outcome {
    let json = serde_json::to_string(result).expect("reports have no maps with odd keys");
    if json.len() > ANSWER_BYTES_MAX {
        let detail = format!("the answer is longer than {ANSWER_BYTES_MAX} bytes");
        return Err(Box::new(Failure::new(FailureCode::AnswerTooLarge, detail)));
    }
    Ok(json)
}
