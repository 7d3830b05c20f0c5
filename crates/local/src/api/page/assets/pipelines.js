// The list of pipelines, and one pipeline with its builds.

import { newBuild } from './actions.js';
import { h } from './dom.js';
import { count, emoji, shortCommit, sinceElement, spanElement } from './format.js';
import { follow, organization } from './server.js';
import { badge, mark, word } from './states.js';

export const pipelinePath = (slug) => `/${organization}/${slug}`;
export const buildPath = (slug, number) => `${pipelinePath(slug)}/builds/${number}`;

/** A piece of text to be typed into a shell, with a button that copies it. */
export function command(text) {
  return h('div', { class: 'command' },
    // Broken between flags, never within one.
    h('code', {}, text.split(/ (?=--)/).map((part, index) => [index > 0 && ' ', h('span', { key: index }, part)])),
    h('button', { type: 'button', class: 'tool', onclick: (event) => copy(event.target, text) }, 'Copy'));
}

async function copy(node, text) {
  await navigator.clipboard.writeText(text).catch(() => {});
  node.textContent = 'Copied';
  setTimeout(() => { node.textContent = 'Copy'; }, 1500);
}

const flags = () => (location.port === '8384' && location.hostname === '127.0.0.1' ? '' : ` --server ${location.origin}`);

/** Every pipeline. */
export const pipelines = {
  title: () => 'Pipelines',
  start(route, show) {
    return follow('/-/pipelines', (list, error) => show(list && { list }, error));
  },
  draw({ list }) {
    return [
      h('div', { class: 'heading' }, h('h1', {}, 'Pipelines'), list.length > 0 && h('span', { class: 'note' }, count(list.length, 'pipeline'))),
      list.length === 0 ? noPipelines() : h('ul', { class: 'cards' }, list.map(pipelineCard)),
    ];
  },
};

function noPipelines() {
  return h('div', { class: 'empty' },
    h('h2', {}, 'No pipelines yet'),
    h('p', {}, 'Build a pipeline file, and it appears here:'),
    command(`buildkite-local build .buildkite/pipeline.yml --repo .${flags()}`),
    h('p', {}, 'Jobs need somebody to run them. Any Buildkite agent will do:'),
    command(agentCommand([])));
}

/** How a queue is resumed from the command line. */
export function resumeCommand(queue) {
  return `buildkite-local queue resume ${queue}${flags()}`;
}

/** How an agent with these tags is started for this server. */
export function agentCommand(list) {
  const tags = list.length > 0 ? ` --tags ${list.join(',')}` : '';
  const local = ['127.0.0.1', 'localhost', '[::1]'].includes(location.hostname);
  const token = local ? 'local-agent-token' : '$BUILDKITE_AGENT_TOKEN';
  return `buildkite-agent start --endpoint ${location.origin}/v3 --token ${token} --build-path /tmp/builds${tags}`;
}

function pipelineCard(pipeline) {
  const [newest] = pipeline.builds;
  return h('li', { class: 'card', key: pipeline.slug },
    h('a', { class: 'cover', href: pipelinePath(pipeline.slug), 'aria-label': pipeline.name }),
    h('div', { class: 'card-head' },
      newest ? mark(newest.state, true) : mark('waiting', true),
      h('div', { class: 'grow' },
        h('h2', { class: 'ellipsis' }, emoji(pipeline.name)),
        h('p', { class: 'note ellipsis' }, pipeline.repository)),
      history(pipeline)),
    newest
      ? h('p', { class: 'card-foot' },
        h('a', { class: 'strong', href: buildPath(pipeline.slug, newest.number) }, `#${newest.number}`),
        h('span', { class: 'grow ellipsis' }, buildTitle(newest)),
        h('span', { class: 'note' }, sinceElement(newest.created_at)))
      : h('p', { class: 'card-foot note' }, 'Never built'));
}

// The last builds as bars, oldest first, as high as they took long.
function history(pipeline) {
  const builds = pipeline.builds.slice().reverse();
  const took = (build) => (build.finished_at ?? Date.now()) - (build.started_at ?? build.finished_at ?? Date.now());
  const longest = Math.max(1, ...builds.map(took));
  return h('div', { class: 'history' }, builds.map((build) =>
    h('a', {
      key: build.number, class: `bar ${build.state}`, href: buildPath(pipeline.slug, build.number),
      title: `#${build.number} ${word(build.state)}`, 'aria-label': `Build ${build.number}: ${word(build.state)}`,
      css: { height: `${Math.round(20 + 80 * (took(build) / longest))}%` },
    })));
}

export function buildTitle(build) {
  return emoji(build.message.split('\n')[0] || `Build of ${build.branch}`);
}

const PAGE = 30;

/** One pipeline. */
export const pipeline = {
  title: (route, data) => data?.pipeline.name ?? route.pipeline,
  start(route, show) {
    let shown = PAGE;
    let end = () => {};
    const more = () => {
      shown += PAGE;
      begin();
    };
    const begin = () => {
      end();
      end = follow(`/-/pipelines/${encodeURIComponent(route.pipeline)}?builds=${shown}`, (data, error) =>
        show(data && { pipeline: data, more }, error));
    };
    begin();
    return () => end();
  },
  draw({ pipeline: shown, more }, { go }) {
    const create = () => newBuild(shown, {}, (build) => go(buildPath(shown.slug, build.number)));
    return [
      h('div', { class: 'heading' },
        h('div', { class: 'grow' },
          h('h1', { class: 'ellipsis' }, emoji(shown.name)),
          h('p', { class: 'note ellipsis' }, shown.repository)),
        h('button', { type: 'button', class: 'button primary', onclick: create }, 'New build')),
      shown.builds.length === 0
        ? h('div', { class: 'empty' }, h('h2', {}, 'No builds yet'), h('p', {}, 'Start one with “New build”, or from the command line:'),
          command(`buildkite-local build .buildkite/pipeline.yml --repo ${shown.repository} --pipeline ${shown.slug} --watch${flags()}`))
        : h('ul', { class: 'builds' }, shown.builds.map((build) => buildRow(shown, build))),
      shown.more && h('button', { type: 'button', class: 'button', onclick: more }, 'Older builds'),
      h('details', { class: 'section' }, h('summary', {}, 'Steps as configured'), h('pre', { class: 'yaml' }, shown.configuration)),
    ];
  },
};

function buildRow(shown, build) {
  return h('li', { class: `build-row ${build.state}`, key: build.number },
    h('a', { class: 'cover', href: buildPath(shown.slug, build.number), 'aria-label': `Build ${build.number}` }),
    badge(build.state),
    h('div', { class: 'grow' },
      h('div', { class: 'ellipsis strong' }, buildTitle(build)),
      h('div', { class: 'facts note' },
        h('span', {}, `#${build.number}`), h('span', { class: 'chip' }, build.branch),
        h('code', {}, shortCommit(build.commit)), build.author && h('span', {}, build.author))),
    h('div', { class: 'when note' },
      h('div', {}, spanElement(build.started_at, build.finished_at) ?? 'not started'),
      h('div', {}, sinceElement(build.created_at))));
}
