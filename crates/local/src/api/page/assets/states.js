// What each state of a job or build is called, and its mark. Shape and word say it; colour only helps.

import { h } from './dom.js';

// Word, tone (a class of style.css), shape.
const STATES = {
  passed: ['Passed', 'good', 'check'],
  failed: ['Failed', 'bad', 'cross'],
  failing: ['Failing', 'bad', 'spin'],
  soft_failed: ['Soft failed', 'warn', 'bang'],
  running: ['Running', 'run', 'spin'],
  scheduled: ['Scheduled', 'wait', 'clock'],
  assigned: ['Assigned', 'run', 'dot'],
  accepted: ['Accepted', 'run', 'dot'],
  reserved: ['Reserved', 'run', 'dot'],
  waiting: ['Waiting', 'wait', 'ring'],
  pending: ['Pending', 'wait', 'ring'],
  limiting: ['Limiting', 'wait', 'ring'],
  limited: ['Limited', 'wait', 'ring'],
  blocked: ['Blocked', 'block', 'pause'],
  unblocked: ['Unblocked', 'good', 'check'],
  canceling: ['Cancelling', 'warn', 'spin'],
  canceled: ['Cancelled', 'off', 'slash'],
  timing_out: ['Timing out', 'warn', 'spin'],
  timed_out: ['Timed out', 'bad', 'clock'],
  skipped: ['Skipped', 'off', 'dash'],
  broken: ['Not selected', 'off', 'dash'],
  expired: ['Expired', 'bad', 'clock'],
  waiting_failed: ['Did not run', 'off', 'slash'],
  blocked_failed: ['Did not run', 'off', 'slash'],
  not_run: ['Not run', 'off', 'dash'],
  connected: ['Connected', 'good', 'check'],
  disconnected: ['Disconnected', 'off', 'dash'],
  lost: ['Lost', 'bad', 'bang'],
};

const SHAPES = {
  check: 'M4.5 8.2l2.4 2.4 4.6-5',
  cross: 'M5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4',
  bang: 'M8 4.4v4.4M8 11.3v.2',
  clock: 'M8 4.6V8l2.3 1.6',
  pause: 'M6.4 5.4v5.2M9.6 5.4v5.2',
  slash: 'M4.6 11.4l6.8-6.8',
  dash: 'M5 8h6',
  dot: 'M8 8h.01',
  ring: '',
  spin: '',
};

const SOLID = new Set(['check', 'cross', 'bang', 'pause']);

function known(state) {
  return STATES[state] ?? [state, 'wait', 'ring'];
}

/** The word for a state. */
export function word(state) {
  return known(state)[0];
}

/** The tone of a state: a class. */
export function tone(state) {
  return known(state)[1];
}

/** Whether something is still going to happen. */
export function isOpen(state) {
  const open = ['run', 'wait', 'block'].includes(tone(state));
  return open || ['canceling', 'timing_out', 'failing'].includes(state);
}

/** The mark of a state, with its word for those who cannot see it. */
export function mark(state, large = false) {
  const [text, colour, shape] = known(state);
  const size = large ? 22 : 16;
  return h(
    'svg',
    {
      class: `mark ${colour} ${shape}${SOLID.has(shape) ? ' solid' : ''}`,
      viewBox: '0 0 16 16', width: size, height: size, role: 'img', 'aria-label': text,
    },
    h('circle', { cx: 8, cy: 8, r: 6.6, class: 'body' }),
    shape === 'spin' && h('path', { class: 'arc', d: 'M8 1.4a6.6 6.6 0 0 1 6.6 6.6' }),
    SHAPES[shape] !== '' && h('path', { class: 'sign', d: SHAPES[shape] }),
  );
}

/** A state as a label: mark and word. */
export function badge(state) {
  return h('span', { class: `badge ${tone(state)}` }, mark(state), word(state));
}

// The order in which states are counted up: what is done, what is going on, what is to come.
const ORDER = [
  'passed', 'unblocked', 'soft_failed', 'failed', 'timed_out', 'expired', 'canceled', 'waiting_failed', 'skipped', 'broken',
  'canceling', 'timing_out', 'running', 'accepted', 'assigned', 'reserved', 'scheduled', 'limited', 'limiting', 'blocked',
  'waiting',
];

/** How many jobs are in which state, as `[state, count]`, in a fixed order. */
export function tally(jobs) {
  const counts = new Map();
  for (const job of jobs) counts.set(job.status, (counts.get(job.status) ?? 0) + 1);
  return [...counts].sort(([a], [b]) => ORDER.indexOf(a) - ORDER.indexOf(b));
}

/** The state that stands for several jobs: the one that needs attention most. */
export function summary(jobs) {
  const states = tally(jobs).map(([state]) => state);
  const first = (wanted) => states.find(wanted);
  return first((state) => tone(state) === 'bad') ?? first(isOpen) ?? first((state) => tone(state) === 'warn') ?? states[0] ?? 'waiting';
}
