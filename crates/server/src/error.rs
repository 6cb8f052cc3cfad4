//! What an HTTP caller is told when something can't be done.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An answer that is not a success. [`crate::guard`] adds the request's id on the way out.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: Box<str>,
    hint: Box<str>,
    reasons: Vec<String>,
    field: Option<Box<str>>,
    retry_after_seconds: Option<u32>,
}

/// The body of every answer that is not a success.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// What went wrong.
    pub(crate) error: ErrorDetail,
}

/// What went wrong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub(crate) struct ErrorDetail {
    /// A word for programs, such as `not_found`.
    pub(crate) code: String,
    /// A sentence for people.
    pub(crate) message: String,
    /// What to do next; may be empty.
    pub(crate) hint: String,
    /// The same as the answer's header `x-request-id` and the server's log.
    pub(crate) request_id: String,
    /// Every reason on its own, where there may be several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reasons: Vec<String>,
    /// The input that is wrong, where it is one of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
}

/// The detail, handed to the guard beside the answer.
#[derive(Debug, Clone)]
pub(crate) struct Carried(pub(crate) ErrorDetail);

impl ErrorDetail {
    /// What went wrong and what to do next, where there is one place for both.
    pub(crate) fn words(&self) -> String {
        words(&self.message, &self.hint)
    }
}

fn words(message: &str, hint: &str) -> String {
    if hint.is_empty() { message.to_owned() } else { format!("{message}: {hint}") }
}

/// The word for a status.
pub(crate) fn code_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "timeout",
        409 => "conflict",
        413 => "too_large",
        415 => "unsupported_media_type",
        429 => "too_many_requests",
        503 => "unavailable",
        500..=599 => "internal",
        _ => "bad_request",
    }
}

impl ApiError {
    /// An error of the given status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into().into_boxed_str(),
            hint: Box::default(),
            reasons: Vec::new(),
            field: None,
            retry_after_seconds: None,
        }
    }

    /// 400: what was sent is not usable.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404: what was asked for is not here.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// 413: too much at once.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// 503: not now; try again after so many seconds.
    pub(crate) fn unavailable(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        let mut error = Self::new(StatusCode::SERVICE_UNAVAILABLE, message);
        error.retry_after_seconds = Some(retry_after_seconds);
        error
    }

    /// 500: our own fault.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    /// Adds the next step.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into().into_boxed_str();
        self
    }

    /// Adds every reason on its own.
    #[must_use]
    pub(crate) fn reasons(mut self, reasons: Vec<String>) -> Self {
        self.reasons = reasons;
        self
    }

    /// Names the input that is wrong.
    #[must_use]
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into().into_boxed_str());
        self
    }

    /// Lets the caller come again after so many seconds at the latest.
    #[must_use]
    pub(crate) fn sooner_than(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = self.retry_after_seconds.map(|known| known.min(seconds));
        self
    }

    /// After how many seconds to come again.
    pub(crate) fn retry_after_seconds(&self) -> Option<u32> {
        self.retry_after_seconds
    }

    /// What went wrong.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What went wrong and what to do next, where there is one place for both.
    pub(crate) fn words(&self) -> String {
        words(&self.message, &self.hint)
    }

    /// The status it answers with.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl From<store::AppendError> for ApiError {
    fn from(error: store::AppendError) -> Self {
        match error {
            store::AppendError::Full { .. } => {
                Self::unavailable(error.to_string(), 10).hint("free space on the data directory's disk")
            }
            store::AppendError::Busy { .. } => Self::unavailable(error.to_string(), 1),
            store::AppendError::Failed { .. } => Self::unavailable(error.to_string(), 5)
                .hint("the server's log and `truegauge doctor` say more"),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let detail = ErrorDetail {
            code: code_of(self.status).to_owned(),
            message: self.message.into(),
            hint: self.hint.into(),
            request_id: String::new(),
            reasons: self.reasons,
            field: self.field.map(String::from),
        };
        let mut response = (self.status, Json(ErrorBody { error: detail.clone() })).into_response();
        if let Some(seconds) = self.retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Carried(detail));
        response
    }
}
