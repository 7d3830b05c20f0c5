// One job of a build: what became of it, its log, its timeline.

import { button } from './actions.js';
import { annotationList, artifactList, pairs, reason } from './build.js';
import { h } from './dom.js';
import { clock, emoji, sinceElement, spanElement } from './format.js';
import { LogView } from './log.js';
import { buildPath } from './pipelines.js';
import { act, follow } from './server.js';
import { isOpen, mark, tone, word } from './states.js';

/** Follows a job. */
export function startJob(id, show) {
  return follow(`/-/jobs/${id}`, show);
}

// The log that is shown now. Its element belongs to it; the rest of the page is drawn around it.
let log = null;

function mountLog(node, job) {
  log?.close();
  log = new LogView(node, job.id, { live: isOpen(job.status), failed: ['bad', 'warn'].includes(tone(job.status)) });
}

/** Ends what belongs to a job that is no longer shown. */
export function leaveJob() {
  log?.close();
  log = null;
}

const TABS = [['log', 'Log'], ['timeline', 'Timeline'], ['artifacts', 'Artifacts'], ['details', 'Details']];
let tab = 'log';

/** The job beside the steps. */
export function drawJob(data, page) {
  const back = buildPath(data.build.pipeline.slug, data.build.number);
  if (data.jobError && !data.job) {
    return h('div', { class: 'empty' }, h('h2', {}, 'This job cannot be shown'), h('p', {}, data.jobError.message), h('a', { class: 'button', href: back }, 'Back to the build'));
  }
  const { job } = data;
  if (!job || job.id !== page.route.job) return h('div', { class: 'skeleton tall' });
  if (log && isOpen(log.status ?? '') && !isOpen(job.status)) log.failed = ['bad', 'warn'].includes(tone(job.status));
  if (log) log.status = job.status;
  const { waits } = data.build.steps.flatMap((step) => step.jobs).find((other) => other.id === job.id) ?? {};
  const tabs = TABS.filter(([name]) => name !== 'artifacts' || job.artifacts?.length > 0);
  const shown = tabs.some(([name]) => name === tab) ? tab : 'log';
  return h('article', { class: 'job', key: job.id },
    jobHead(job, waits, back, page),
    annotationList(job.annotations),
    h('div', { class: 'tabs', role: 'tablist' }, tabs.map(([name, label]) =>
      h('button', {
        type: 'button', role: 'tab', id: `tab-${name}`, 'aria-selected': String(shown === name), 'aria-controls': `panel-${name}`,
        tabindex: shown === name ? 0 : -1, onclick: () => { tab = name; page.redraw(); },
        onkeydown: (event) => moveTab(event, tabs, shown, page),
      }, label, name === 'artifacts' && h('span', { class: 'chip' }, String(job.artifacts.length))))),
    // The log is kept while another tab is shown: it need not be read again.
    h('div', { class: 'panel log-pane', role: 'tabpanel', id: 'panel-log', 'aria-labelledby': 'tab-log', key: `log ${job.id}`, hidden: shown !== 'log' },
      h('div', { class: 'log-mount', mount: (node) => mountLog(node, job) })),
    shown !== 'log' && h('div', { class: 'panel', role: 'tabpanel', id: `panel-${shown}`, 'aria-labelledby': `tab-${shown}`, key: shown }, panel(shown, job, data.build)));
}

function moveTab(event, tabs, shown, page) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  const at = tabs.findIndex(([name]) => name === shown);
  [tab] = tabs[(at + by + tabs.length) % tabs.length];
  page.redraw();
  document.getElementById(`tab-${tab}`)?.focus();
}

function jobHead(job, waits, back, { go }) {
  return h('header', { class: `job-head ${tone(job.status)}` },
    h('a', { class: 'back', href: back }, '← All steps'),
    h('div', { class: 'build-title' },
      mark(job.status, true),
      h('div', { class: 'grow' },
        h('h2', { class: 'ellipsis' }, emoji(job.name)),
        h('div', { class: 'facts note' },
          h('strong', { class: `word ${tone(job.status)}` }, word(job.status)),
          job.agent ? h('span', {}, `on ${job.agent.name}`) : job.stack && h('span', {}, `by stack ${job.stack}`),
          h('span', {}, 'waited ', spanElement(job.runnable_at, job.started_at ?? job.finished_at) ?? 'for others'),
          job.started_at !== null && h('span', {}, 'ran ', spanElement(job.started_at, job.finished_at)),
          job.attempts.length > 1 && attempts(job, back))),
      h('div', { class: 'actions' },
        job.can_cancel && button({ name: `cancel ${job.id}`, label: 'Cancel', busy: 'Cancelling', work: () => act('PUT', `jobs/${job.id}/cancel`) }),
        (job.can_retry || job.no_retry) && button({
          name: `retry ${job.id}`, label: 'Retry', busy: 'Retrying', disabled: job.no_retry,
          work: async () => go(`${back}/jobs/${(await act('PUT', `jobs/${job.id}/retry`)).id}`),
        }))),
    waits && reason(waits, ''),
    failure(job));
}

// Why a job failed, as far as anybody said.
function failure(job) {
  if (job.ending === null || !['bad', 'warn', 'off'].includes(tone(job.status))) return null;
  const said = job.timeline.filter((entry) => ['stack_error', 'agent_lost'].includes(entry.kind));
  return h('div', { class: 'ending' }, h('p', {}, job.ending), said.map((entry) => h('pre', {}, entry.text)));
}

function attempts(job, back) {
  return h('span', { class: 'attempts' }, 'attempt ', job.attempts.map((one, index) =>
    h('a', { key: one.id, href: `${back}/jobs/${one.id}`, 'aria-current': one.id === job.id ? 'page' : null, title: word(one.status) }, String(index + 1))));
}

function panel(name, job, build) {
  if (name === 'timeline') return timeline(job);
  if (name === 'artifacts') return artifactList(job.artifacts, build);
  return details(job);
}

function timeline(job) {
  const begin = job.timeline[0]?.at ?? 0;
  return h('ol', { class: 'timeline' }, job.timeline.map((entry, index) =>
    h('li', { key: index, class: entry.kind },
      h('time', { datetime: new Date(entry.at).toISOString(), title: new Date(entry.at).toLocaleString() }, clock(entry.at)),
      h('span', { class: 'note' }, entry.at === begin ? '' : ['+', spanElement(begin, entry.at)]),
      h('span', { class: 'said' }, entry.kind === 'notification' && h('span', { class: 'chip' }, 'stack'), entry.text))));
}

function details(job) {
  const facts = [
    ['Job', job.id], ['Step key', job.key], ['Queue', job.queue], ['Agent rules', job.rules.join('\n')],
    ['Agent', job.agent && `${job.agent.name} (${job.agent.hostname}, v${job.agent.version})`],
    ['Agent tags', job.agent?.tags.join('\n')], ['Stack', job.stack], ['Priority', String(job.priority)],
    ['Timeout', job.timeout_in_minutes && `${job.timeout_in_minutes} minutes`], ['Image', job.image],
    ['Plugins', job.plugins.join('\n')], ['Exit status', job.exit_status === null ? null : String(job.exit_status)],
  ];
  return [
    job.command && h('section', {}, h('h3', {}, 'Command'), h('pre', { class: 'yaml' }, job.command)),
    h('section', {}, h('h3', {}, 'Job'), pairs(facts.filter(([, value]) => value))),
    h('p', { class: 'note' }, 'Created ', sinceElement(job.created_at)),
  ];
}
