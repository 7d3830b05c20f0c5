// One build: its steps at the side, and beside them what it is about or one of its jobs.

import { button, newBuild, unblock } from './actions.js';
import { h } from './dom.js';
import { bytes, count, emoji, now, shortCommit, sinceElement, span, spanElement } from './format.js';
import { drawJob, startJob } from './job.js';
import { agentCommand, buildPath, buildTitle, command, pipelinePath, resumeCommand } from './pipelines.js';
import { act, follow, organization } from './server.js';
import { isOpen, mark, summary, tally, tone, word } from './states.js';

/** Steps that a person folded or unfolded, by id. */
const chosen = new Map();

export const build = {
  title: (route, data) => (data?.build ? `#${route.number} ${word(data.build.state)} · ${data.build.pipeline.name}` : `#${route.number}`),
  start(route, show) {
    const path = `/-/pipelines/${encodeURIComponent(route.pipeline)}/builds/${route.number}`;
    const seen = { build: null, job: null, jobError: null };
    const end = follow(path, (data, error) => {
      if (data) seen.build = data;
      show(seen.build && { ...seen }, seen.build ? null : error);
    });
    const endJob = route.job && startJob(route.job, (data, error) => {
      Object.assign(seen, { job: data ?? seen.job, jobError: error });
      if (seen.build) show({ ...seen }, null);
    });
    return () => {
      end();
      endJob?.();
    };
  },
  draw(data, page) {
    return h('div', { class: `build${page.route.job ? ' with-job' : ''}` },
      header(data.build, page),
      h('nav', { class: 'steps', 'aria-label': 'Steps' }, stepList(data.build, page)),
      h('div', { class: 'beside', key: page.route.job ?? 'overview' },
        page.route.job ? drawJob(data, page) : overview(data.build, page)));
  },
};

function header(shown, { go, route }) {
  const { slug } = shown.pipeline;
  const open = isOpen(shown.state) && shown.finished_at === null;
  const path = `pipelines/${slug}/builds/${shown.number}`;
  const jobs = shown.steps.flatMap((step) => (step.kind === 'wait' ? [] : step.jobs)).filter((job) => !job.retried);
  return h('header', { class: `build-head ${tone(shown.state)}` },
    h('div', { class: 'build-title' },
      mark(shown.state, true),
      h('div', { class: 'grow' },
        h('h1', { class: 'ellipsis', title: shown.message }, route.job ? h('a', { href: buildPath(slug, shown.number) }, buildTitle(shown)) : buildTitle(shown)),
        h('div', { class: 'facts note' },
          h('a', { href: pipelinePath(slug) }, emoji(shown.pipeline.name)), h('span', {}, `#${shown.number}`),
          h('strong', { class: `word ${tone(shown.state)}` }, word(shown.state)),
          h('span', { class: 'chip' }, shown.branch), h('code', { title: shown.commit }, shortCommit(shown.commit)),
          shown.author && h('span', {}, shown.author),
          shown.triggered_from && h('span', {}, 'triggered by ', h('a', { href: buildPath(shown.triggered_from.pipeline, shown.triggered_from.number) }, `${shown.triggered_from.pipeline} #${shown.triggered_from.number}`)),
          h('span', {}, sinceElement(shown.created_at)),
          spanElement(shown.started_at, shown.finished_at, { class: 'took' }))),
      h('div', { class: 'actions' },
        open && button({ name: `cancel ${shown.id}`, label: 'Cancel', busy: 'Cancelling', sure: 'Really cancel?', work: () => act('PUT', `${path}/cancel`) }),
        button({ name: `rebuild ${shown.id}`, label: 'Rebuild', busy: 'Creating', work: async () => go(buildPath(slug, (await act('PUT', `${path}/rebuild`)).number)) }),
        h('button', { type: 'button', class: 'button', onclick: () => newBuild(shown.pipeline, shown, (made) => go(buildPath(slug, made.number))) }, 'New build'))),
    jobs.length > 0 && progress(jobs));
}

// All jobs as one bar, and in words.
function progress(jobs) {
  const counts = tally(jobs);
  return h('div', { class: 'progress' },
    h('div', { class: 'progress-bar', 'aria-hidden': 'true' },
      counts.map(([state, number]) => h('i', { key: state, class: tone(state), css: { flexGrow: String(number) } }))),
    h('div', { class: 'facts note' }, counts.map(([state, number]) => h('span', { key: state }, `${number} ${word(state).toLowerCase()}`))));
}

// ---- the steps

function stepList(shown, page) {
  const members = new Map();
  for (const step of shown.steps) {
    if (step.group === null) continue;
    if (!members.has(step.group)) members.set(step.group, []);
    members.get(step.group).push(step);
  }
  const top = shown.steps.filter((step) => step.group === null);
  if (top.length === 0) return h('p', { class: 'note' }, 'This build has no steps.');
  return h('ul', {}, top.map((step) => (step.kind === 'group' ? groupItem(step, members.get(step.id) ?? [], shown, page) : stepItems(step, shown, page))));
}

function groupItem(step, members, shown, page) {
  const jobs = members.filter((member) => member.kind !== 'wait').flatMap((member) => member.jobs).filter((job) => !job.retried);
  const state = summary(jobs);
  const holds = members.some((member) => member.jobs.some((job) => job.id === page.route.job));
  const open = chosen.get(step.id) ?? (holds || tone(state) !== 'good');
  return h('li', { class: 'group', key: step.id },
    h('button', {
      type: 'button', class: 'step', 'aria-expanded': String(open),
      onclick: () => { chosen.set(step.id, !open); page.redraw(); },
    }, mark(state), h('span', { class: 'grow ellipsis strong' }, emoji(step.name)), h('span', { class: 'note' }, `${jobs.length}`)),
    open && h('ul', {}, members.map((member) => stepItems(member, shown, page))));
}

function stepItems(step, shown, page) {
  if (step.kind === 'wait') return h('li', { class: 'waiter', key: step.id }, h('span', {}, step.name === '~' ? 'wait' : emoji(step.name)));
  if (step.kind === 'block' || step.kind === 'input') return gateItem(step);
  if (step.jobs.length === 0) return h('li', { key: step.id }, h('span', { class: 'step idle' }, mark('skipped'), h('span', { class: 'grow ellipsis' }, emoji(step.name))));
  const counting = inOrder(step.jobs).filter((job) => !job.retried);
  if (counting.length === 0 || counting.every((job) => job.status === 'broken')) return null;
  if (counting.length === 1) return jobItem(step, counting[0], shown, page, emoji(counting[0].name));
  const state = summary(counting);
  const holds = step.jobs.some((job) => job.id === page.route.job);
  const open = chosen.get(step.id) ?? (holds || tone(state) !== 'good');
  return h('li', { class: 'group', key: step.id },
    h('button', {
      type: 'button', class: 'step', 'aria-expanded': String(open),
      onclick: () => { chosen.set(step.id, !open); page.redraw(); },
    }, mark(state), h('span', { class: 'grow ellipsis' }, emoji(step.name)), h('span', { class: 'note' }, `${counting.filter((job) => job.status === 'passed').length}/${counting.length}`)),
    open && h('ul', {}, counting.map((job) => jobItem(step, job, shown, page, emoji(job.name)))));
}

// By place within the step, then by attempt.
function inOrder(jobs) {
  return jobs.slice().sort((a, b) => (a.parallel?.[0] ?? 0) - (b.parallel?.[0] ?? 0));
}

function gateItem(step) {
  const job = step.jobs[0];
  const name = emoji(step.name);
  return h('li', { class: 'gate', key: step.id },
    h('div', { class: 'step' }, mark(job?.status ?? 'waiting'), h('span', { class: 'grow ellipsis' }, name),
      job?.status === 'blocked'
        ? h('button', { type: 'button', class: 'button primary small', onclick: () => unblock(job.id, name, step.gate) }, step.gate.fields.length > 0 ? 'Answer…' : 'Unblock…')
        : h('span', { class: 'note', title: job?.waits && emoji(job.waits.why) }, word(job?.status ?? 'waiting'))));
}

// A trigger leads to the build that it started.
function triggerItem(step, job, name) {
  const { child } = job;
  return h('li', { key: job.id }, h('a', { class: 'step', href: buildPath(child.pipeline, child.number) },
    mark(job.status),
    h('span', { class: 'grow' }, h('span', { class: 'ellipsis full' }, name),
      h('span', { class: 'ellipsis full note' }, `→ ${child.pipeline} #${child.number}, ${word(child.state).toLowerCase()}`)),
    h('span', { class: 'note took' }, spanElement(job.started_at ?? job.runnable_at, job.finished_at))));
}

function jobItem(step, job, shown, page, name) {
  if (job.child) return triggerItem(step, job, name);
  const current = page.route.job === job.id || step.jobs.some((other) => other.retried && other.id === page.route.job && sameSlot(other, job));
  return h('li', { key: job.id },
    h('a', {
      class: `step${current ? ' current' : ''}`, href: `${buildPath(shown.pipeline.slug, shown.number)}/jobs/${job.id}`,
      'aria-current': current ? 'page' : null,
    },
    mark(job.status),
    h('span', { class: 'grow' },
      h('span', { class: 'ellipsis full' }, name),
      h('span', { class: `ellipsis full note${job.waits?.mend ? ' stuck' : ''}`, title: job.waits && emoji(job.waits.why) }, whoAndWhy(job, step))),
    job.attempt > 1 && h('span', { class: 'chip', title: `Tried ${job.attempt} times` }, `↻ ${job.attempt}`),
    h('span', { class: 'note took' }, spanElement(job.started_at, job.finished_at))));
}

const sameSlot = (a, b) => (a.parallel?.[0] ?? 0) === (b.parallel?.[0] ?? 0);

// Who runs a job, or why it does not run.
function whoAndWhy(job, step) {
  if (job.waits && (job.waits.mend || job.status !== 'scheduled')) return emoji(job.waits.why);
  switch (job.status) {
    case 'scheduled': return [`in queue ${job.queue} for `, spanElement(job.runnable_at, null)];
    case 'reserved': return job.told ?? `reserved by ${job.stack ?? 'a stack'}`;
    case 'skipped': return step.skip && step.skip !== 'true' ? emoji(step.skip) : 'skipped';
    case 'waiting_failed': case 'blocked_failed': return 'a dependency failed';
    case 'failed': case 'soft_failed': case 'timed_out': case 'canceled':
      return [job.signal_reason && job.told ? job.told : job.exit_status !== null && `exit ${job.exit_status}`, job.agent].filter(Boolean).join(' · ');
    case 'limited': return job.told ?? word(job.status).toLowerCase();
    case 'waiting': case 'limiting': return word(job.status).toLowerCase();
    default: return job.agent ? `on ${job.agent}` : job.stack ? `by ${job.stack}` : word(job.status).toLowerCase();
  }
}

// ---- what the build is about

function overview(shown, page) {
  const own = shown.annotations.filter((one) => one.job === null);
  const facts = Object.entries(shown.meta_data).filter(([key]) => !key.startsWith('buildkite:'));
  const env = Object.entries(shown.env);
  return [
    ...mends(shown),
    ...annotationList(own),
    waterfall(shown, page),
    shown.artifacts?.length > 0 && h('section', { key: 'artifacts' }, h('h2', {}, 'Artifacts'), artifactList(shown.artifacts, shown)),
    facts.length > 0 && h('section', { key: 'meta' }, h('h2', {}, 'Meta-data'), pairs(facts)),
    env.length > 0 && h('section', { key: 'env' }, h('h2', {}, 'Environment'), pairs(env)),
  ];
}

// What somebody has to do for jobs that nobody would take: each reason once.
function mends(shown) {
  const stuck = new Map();
  for (const job of shown.steps.flatMap((step) => step.jobs)) {
    if (!job.waits?.mend) continue;
    const name = JSON.stringify(job.waits);
    if (!stuck.has(name)) stuck.set(name, { waits: job.waits, jobs: [] });
    stuck.get(name).jobs.push(job);
  }
  return [...stuck].map(([key, { waits, jobs }]) => reason(waits, jobs.length === 1 ? emoji(jobs[0].name) : count(jobs.length, 'job'), key));
}

/** Why somebody or something waits, and how to mend it. */
export function reason(waits, who, key = 'reason') {
  return h('div', { class: `reason${waits.mend ? ' stuck' : ''}`, key },
    h('p', {}, h('strong', {}, who ? `${who} ${who.endsWith('jobs') ? 'wait' : 'waits'}: ` : ''), emoji(waits.why), waits.mend?.start_agent && ' Start one:'),
    waits.mend?.start_agent && command(agentCommand(waits.mend.start_agent)),
    waits.mend?.resume_queue && command(resumeCommand(waits.mend.resume_queue)));
}

/** Annotations; their HTML was cleaned by the server. */
export function annotationList(list) {
  return list.map((one) => h('article', { class: `annotation ${one.style || 'plain'}`, key: `annotation ${one.context}`, 'aria-label': `Annotation ${one.context}` },
    h('div', { class: 'prose', html: one.html })));
}

/** Names with values. */
export function pairs(list) {
  return h('dl', { class: 'pairs' }, list.map(([key, value]) => h('div', { key }, h('dt', {}, key), h('dd', {}, value))));
}

/** Files that jobs kept. */
export function artifactList(list, shown) {
  const path = `/-/rest/${organization}/pipelines/${shown.pipeline.slug}/builds/${shown.number}/artifacts`;
  return h('ul', { class: 'table' }, list.map((one) => h('li', { class: 'line', key: one.id },
    h('a', { class: 'grow ellipsis', href: `${path}/${one.id}/download`, target: '_blank' }, one.path), h('span', { class: 'note' }, bytes(one.size)))));
}

const MOST_BARS = 200;

// When each job waited and ran, against the time of the whole build.
function waterfall(shown, page) {
  const rows = shown.steps.filter((step) => step.kind === 'command' || step.kind === 'trigger')
    .flatMap((step) => inOrder(step.jobs).filter((job) => job.runnable_at !== null).map((job) => ({ step, job })));
  if (rows.length === 0) return null;
  const begin = Math.min(...rows.map(({ job }) => job.runnable_at));
  const end = Math.max(begin + 1000, ...rows.map(({ job }) => job.finished_at ?? now()));
  const at = (time) => `${(100 * (time - begin)) / (end - begin)}%`;
  const length = (from, to) => `${Math.max(0.2, (100 * (to - from)) / (end - begin))}%`;
  return h('section', { key: 'waterfall', class: 'waterfall' },
    h('h2', {}, 'Timeline', h('span', { class: 'note' }, span(end - begin))),
    h('ul', {}, rows.slice(0, MOST_BARS).map(({ step, job }) => {
      const started = job.started_at ?? job.finished_at ?? end;
      const finished = job.finished_at ?? (job.started_at === null ? null : end);
      const waited = `waited ${span(started - job.runnable_at)}`;
      const ran = job.started_at === null ? '' : `, ran ${span(finished - job.started_at)}`;
      const name = emoji(job.name);
      return h('li', { key: job.id },
        h('a', { href: `${buildPath(shown.pipeline.slug, shown.number)}/jobs/${job.id}`, title: `${name}: ${word(job.status)}, ${waited}${ran}` },
          h('span', { class: 'name ellipsis' }, mark(job.status), h('span', { class: 'ellipsis' }, name, job.attempt > 1 && ` ↻${job.attempt}`)),
          h('span', { class: 'track' },
            h('i', { class: 'waited', css: { left: at(job.runnable_at), width: length(job.runnable_at, started) } }),
            job.started_at !== null && h('i', { class: `ran ${tone(job.status)}`, css: { left: at(job.started_at), width: length(job.started_at, finished) } })),
          h('span', { class: 'note took' }, job.started_at === null ? '' : spanElement(job.started_at, job.finished_at))));
    })),
    rows.length > MOST_BARS && h('p', { class: 'note' }, `${rows.length - MOST_BARS} more jobs are not drawn.`));
}
