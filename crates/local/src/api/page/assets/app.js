// The page: finds out from the address what to show, draws it, and goes on as the server changes.

import { onAction } from './actions.js';
import { agents } from './agents.js';
import { build } from './build.js';
import { h, render } from './dom.js';
import { tick } from './format.js';
import { leaveJob } from './job.js';
import { pipeline, pipelines, pipelinePath } from './pipelines.js';
import * as server from './server.js';

const root = document.getElementById('app');

// What is shown: the view, where it was asked for, and what came.
let shown = { view: pipelines, route: {}, data: null, error: null };
let end = () => {};

function routeOf(path) {
  const parts = path.split('/').filter((part) => part !== '').map(decodeURIComponent);
  if (parts.length === 0) return [pipelines, {}];
  if (parts.length === 1 && parts[0] === 'agents') return [agents, {}];
  const [, name, builds, number, jobs, job] = parts;
  if (builds === 'builds' && number !== undefined) {
    return [build, { pipeline: name, number, job: jobs === 'jobs' ? job : jobOfHash() }];
  }
  return [pipeline, { pipeline: name }];
}

// The hosted service names a job behind the address of its build.
function jobOfHash() {
  return /^#([0-9a-f-]{36})$/.exec(location.hash)?.[1];
}

function start() {
  const [view, route] = routeOf(location.pathname);
  const sameBuild = view === build && shown.view === build && route.number === shown.route.number && route.pipeline === shown.route.pipeline;
  end();
  if (shown.route.job && shown.route.job !== route.job) leaveJob();
  // Beside the same build the steps stay where they are.
  shown = { path: location.pathname, view, route, data: sameBuild ? { ...shown.data, job: null, jobError: null } : null, error: null };
  if (sameBuild && shown.data.build === undefined) shown.data = null;
  const mine = shown;
  end = view.start(route, (data, error) => {
    if (mine !== shown) return;
    Object.assign(mine, { data: data ?? mine.data, error });
    draw();
  });
  draw();
}

/** Goes to another page of this one. */
function go(path) {
  history.pushState(null, '', path);
  start();
  window.scrollTo(0, 0);
  document.getElementById('main')?.focus({ preventScroll: true });
}

function draw() {
  const { view, route, data, error } = shown;
  document.title = `${view.title(route, data)} · buildkite-local`;
  render(root,
    h('a', { class: 'skip', href: '#main', onclick: (event) => { event.preventDefault(); document.getElementById('main').focus(); } }, 'To the content'),
    bar(view, route),
    h('main', { id: 'main', tabindex: -1, class: view === build ? 'wide' : '' }, content(view, route, data, error)));
}

function content(view, route, data, error) {
  if (error?.status === 401) return signIn();
  if (data) return [error && h('p', { class: 'problem', role: 'alert' }, error.message), view.draw(data, { route, go, redraw: draw })];
  if (error) {
    return h('div', { class: 'empty' }, h('h1', {}, error.status === 404 ? 'Not found' : 'This cannot be shown'), h('p', {}, error.message),
      h('a', { class: 'button', href: '/' }, 'All pipelines'));
  }
  return h('div', { 'aria-busy': 'true', 'aria-label': 'Loading' }, h('div', { class: 'skeleton title' }), [1, 2, 3, 4].map((key) => h('div', { class: 'skeleton', key })));
}

function bar(view, route) {
  const link = (href, text, current) => h('a', { href, 'aria-current': current ? 'page' : null }, text);
  return h('header', { class: 'bar' },
    h('a', { class: 'brand', href: '/' }, h('img', { src: document.querySelector('link[rel=icon]').href, alt: '', width: 20, height: 20 }), h('span', {}, 'buildkite-local')),
    h('nav', { 'aria-label': 'Main' },
      link('/', 'Pipelines', view === pipelines),
      route.pipeline && link(pipelinePath(route.pipeline), route.pipeline, view === pipeline),
      link('/agents', 'Agents', view === agents)),
    h('span', { class: 'grow' }),
    h('span', { class: `live ${server.connected ? 'on' : 'off'}`, role: 'status', title: server.connected ? 'Updates by itself' : 'The server does not answer; trying again' },
      server.connected ? 'Live' : 'Reconnecting…'),
    h('button', { type: 'button', class: 'tool', title: 'Light, dark, or as the system', onclick: nextTheme }, `${theme()[0].toUpperCase()}${theme().slice(1)}`));
}

const THEMES = ['auto', 'light', 'dark'];
const theme = () => localStorage.getItem('theme') ?? 'auto';

function nextTheme() {
  localStorage.setItem('theme', THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  applyTheme();
  draw();
}

function applyTheme() {
  document.documentElement.dataset.theme = theme();
}

let refused = null;

function signIn() {
  const submit = async (event) => {
    event.preventDefault();
    refused = await server.signIn(new FormData(event.target).get('token')).then(() => null, (error) => error.message);
    draw();
  };
  return h('form', { class: 'empty sign-in', onsubmit: submit },
    h('h1', {}, 'Sign in'),
    h('p', {}, 'This server is reachable from a network. Its API token opens the page.'),
    h('label', { class: 'field' }, h('span', {}, 'API token'), h('input', { type: 'password', name: 'token', required: true, autocomplete: 'current-password' })),
    refused && h('p', { class: 'problem', role: 'alert' }, refused),
    h('button', { type: 'submit', class: 'button primary' }, 'Sign in'));
}

document.addEventListener('click', (event) => {
  const link = event.target.closest('a[href]');
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute('download')) return;
  const path = link.getAttribute('href');
  if (!path.startsWith('/') || path.startsWith('/-/')) return;
  event.preventDefault();
  if (path !== location.pathname) go(path);
});
window.addEventListener('popstate', () => {
  // Going to another line of the same log is no other page.
  if (location.pathname !== shown.path || jobOfHash()) start();
});
onAction(draw);
server.onConnection(draw);
setInterval(() => { if (!document.hidden) tick(); }, 1000);
applyTheme();
start();
server.open();
