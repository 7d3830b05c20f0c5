//! Wire types of artifacts: create a batch, send the bytes, report the state; search and download.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Body of `POST jobs/{id}/artifacts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArtifactBatch {
    /// The same in every repetition of one batch.
    pub id: String,
    /// What is about to be uploaded.
    #[serde(default)]
    pub artifacts: Vec<NewArtifact>,
    /// Empty for the server's own storage, else the URL of a bucket.
    #[serde(default)]
    pub upload_destination: String,
    /// Whether the client can send a file in parts.
    #[serde(default)]
    pub multipart_supported: bool,
}

/// A file that is about to be uploaded.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NewArtifact {
    /// Relative to the checkout: what people search by.
    #[serde(default)]
    pub path: String,
    /// Where the file was on the agent's machine.
    #[serde(default)]
    pub absolute_path: String,
    /// The pattern that found it.
    #[serde(default)]
    pub glob_path: String,
    /// In bytes.
    #[serde(default)]
    pub file_size: i64,
    /// Hexadecimal; may be empty.
    #[serde(default)]
    pub sha1sum: String,
    /// Hexadecimal; may be empty.
    #[serde(default)]
    pub sha256sum: String,
    /// What the bytes are.
    #[serde(default)]
    pub content_type: String,
    /// Where the file will be, when it does not go to the server.
    #[serde(default)]
    pub url: String,
    /// As in the batch.
    #[serde(default)]
    pub upload_destination: String,
}

/// Answer to `POST jobs/{id}/artifacts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArtifactBatchCreated {
    /// The batch's id.
    pub id: String,
    /// In the order of the request.
    pub artifact_ids: Vec<String>,
    /// For artifacts without instructions of their own. Clients crash without it.
    pub upload_instructions: UploadInstructions,
    /// By artifact id.
    pub per_artifact_instructions: BTreeMap<String, UploadInstructions>,
}

/// How an artifact is to be sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadInstructions {
    /// One form with the whole file.
    pub action: UploadAction,
    /// One request for each part, when there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<UploadAction>,
    /// Fields of the form before the file.
    pub data: BTreeMap<String, String>,
}

/// One request of an upload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadAction {
    /// The whole URL for a part; for a form its path is replaced by `path`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The HTTP method.
    pub method: String,
    /// The path of a form upload.
    pub path: String,
    /// The name of the form's file field.
    pub file_input: String,
    /// The part, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_number: Option<u32>,
}

/// Body of `PUT jobs/{id}/artifacts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArtifactUpdate {
    /// What became of each upload.
    #[serde(default)]
    pub artifacts: Vec<UploadedArtifact>,
}

/// What became of an upload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UploadedArtifact {
    /// The artifact's id.
    pub id: String,
    /// `finished` or `error`.
    pub state: String,
    /// Whether it was sent in parts.
    #[serde(default)]
    pub multipart: bool,
    /// What each part was answered with.
    #[serde(default)]
    pub multipart_etags: Vec<PartEtag>,
}

/// A part of an upload, and the `ETag` in the answer to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartEtag {
    /// Counted from 1.
    pub part_number: u32,
    /// As it came.
    pub etag: String,
}

/// Query of `GET builds/{id}/artifacts/search`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ArtifactSearch {
    /// A path in which `*` stands for anything.
    #[serde(default)]
    pub query: String,
    /// A step by key, label or id, or a job by id.
    #[serde(default)]
    pub scope: String,
    /// The wanted state.
    #[serde(default)]
    pub state: String,
    /// Also those of jobs that were retried.
    #[serde(default)]
    pub include_retried_jobs: bool,
    /// All of one path, not only the newest.
    #[serde(default)]
    pub include_duplicates: bool,
}

/// An artifact that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Artifact {
    /// The artifact's id.
    pub id: String,
    /// Relative to the checkout.
    pub path: String,
    /// Where the file was on the agent's machine.
    pub absolute_path: String,
    /// The pattern that found it.
    pub glob_path: String,
    /// In bytes.
    pub file_size: i64,
    /// Hexadecimal; may be empty.
    pub sha1sum: String,
    /// Hexadecimal; may be empty.
    pub sha256sum: String,
    /// The job that uploaded it.
    pub job_id: String,
    /// RFC 3339; clients must be able to read it.
    pub created_at: String,
    /// Where it can be downloaded without a token.
    pub url: String,
    /// The bucket, when it is not on the server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upload_destination: String,
    /// What the bytes are.
    pub content_type: String,
}
