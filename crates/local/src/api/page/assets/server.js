// Talking to the server: views that follow its changes, and actions.

import { learnTime } from './format.js';

/** The organisation that this server has. */
export const organization = document.documentElement.dataset.organization;

/** Why a request did not work out. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Refusal(0, 'The server does not answer. Is it running?');
  }
  learnTime(response.headers.get('date'));
  if (!response.ok && response.status !== 304) {
    const body = await response.json().catch(() => ({}));
    throw new Refusal(response.status, body.message ?? `The server answered with status ${response.status}.`);
  }
  return response;
}

/** Changes something. `path` is one of the REST API, below the organisation. */
export async function act(method, path, body = {}) {
  const response = await request(`/-/rest/${encodeURIComponent(organization)}/${path}`, json(method, body));
  return response.json().catch(() => ({}));
}

/** Signs in with the API token. */
export async function signIn(token) {
  await request('/-/session', json('POST', { token }));
  changed();
  open();
}

/** Forgets who signed in. */
export async function signOut() {
  await request('/-/session', json('DELETE', {}));
  changed();
}

function json(method, body) {
  return { method, headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
}

/** The log of a job from byte `from` on, as a stream of bytes. */
export async function log(job, from, signal) {
  const response = await request(`/-/jobs/${job}/log?from=${from}`, { signal });
  return {
    body: response.body,
    next: Number(response.headers.get('log-next')),
    more: response.headers.get('log-more') === 'true',
    complete: response.headers.get('log-complete') === 'true',
  };
}

// Whoever wants to know that something has changed.
const listeners = new Set();

/** Calls `listener` after every change on the server. Returns a function that ends it. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  for (const listener of [...listeners]) listener();
}

let stream = null;
let again = null;

/** `true` while changes are heard of as they happen. */
export let connected = true;
let connectionListener = () => {};

/** Calls `listener` when the connection is lost or back. */
export function onConnection(listener) {
  connectionListener = listener;
}

function setConnected(value) {
  if (connected === value) return;
  connected = value;
  connectionListener();
}

/** Begins to listen for changes; a page that nobody sees does not. */
export function open() {
  close();
  if (document.hidden) return;
  stream = new EventSource('/-/events');
  stream.onmessage = () => {
    setConnected(true);
    changed();
  };
  stream.onerror = () => {
    // The browser comes again by itself unless the answer was an error.
    if (stream?.readyState !== EventSource.CLOSED) return lost();
    lost();
    again = setTimeout(open, 2000);
  };
}

function lost() {
  setConnected(false);
}

function close() {
  clearTimeout(again);
  stream?.close();
  stream = null;
}

document.addEventListener('visibilitychange', () => (document.hidden ? close() : open()));

// A view is asked for again at most this often, and slower when it takes long.
const SHORTEST = 300;
const SHARE = 4;

/**
 * Keeps a view up to date: calls `show(data, error)` first and whenever it has changed. Returns a function that
 * ends it.
 */
export function follow(path, show) {
  const abort = new AbortController();
  let tag = null;
  let timer = null;
  let busy = false;
  let stale = true;
  let earliest = 0;

  async function refresh() {
    timer = null;
    busy = true;
    stale = false;
    const began = performance.now();
    try {
      const headers = tag ? { 'if-none-match': tag } : {};
      const response = await request(path, { headers, signal: abort.signal });
      if (response.status !== 304) {
        const data = await response.json();
        tag = response.headers.get('etag');
        if (!abort.signal.aborted) show(data, null);
      }
    } catch (error) {
      if (abort.signal.aborted) return;
      tag = null;
      show(null, error);
    } finally {
      busy = false;
    }
    const took = performance.now() - began;
    earliest = performance.now() + Math.max(SHORTEST, took * SHARE);
    if (stale) plan();
  }

  function plan() {
    stale = true;
    if (busy || timer !== null || abort.signal.aborted) return;
    timer = setTimeout(refresh, Math.max(0, earliest - performance.now()));
  }

  plan();
  const end = onChange(plan);
  return () => {
    abort.abort();
    clearTimeout(timer);
    end();
  };
}
