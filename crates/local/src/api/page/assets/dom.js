// A small way to say what the page should look like and let the document follow: `h` describes an element,
// `render` changes a parent's children into what is described. Elements are kept where they can be, so focus,
// scroll positions and half-written fields survive an update.

const SVG = 'http://www.w3.org/2000/svg';
const SVG_TAGS = new Set(['svg', 'path', 'circle', 'rect']);

/**
 * Describes an element. Properties are attributes, except: `key` tells children apart, `on…` are listeners,
 * `html` is markup that the server has cleaned, `css` holds style properties, `mount` runs once for a new
 * element, whose children are then its own business.
 */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: children.flat(Infinity).filter(shown).map(described) };
}

function shown(child) {
  return child !== null && child !== undefined && child !== false && child !== true && child !== '';
}

function described(child) {
  return typeof child === 'object' ? child : { text: String(child) };
}

/** Makes the children of `parent` look as described. */
export function render(parent, ...children) {
  reconcile(parent, children.flat(Infinity).filter(shown).map(described));
}

function reconcile(parent, wanted) {
  const old = [...parent.childNodes];
  const keyed = new Map();
  const loose = [];
  for (const node of old) {
    const key = node.described?.key;
    if (key === undefined) loose.push(node);
    else keyed.set(key, node);
  }
  let next = 0;
  const nodes = wanted.map((child) => {
    let node;
    if (child.key !== undefined) {
      node = keyed.get(child.key);
      if (node && fits(node, child)) keyed.delete(child.key);
      else node = undefined;
    } else if (next < loose.length && fits(loose[next], child)) {
      node = loose[next++];
    } else {
      const at = loose.findIndex((one, index) => index >= next && fits(one, child));
      if (at >= 0) [node] = loose.splice(at, 1);
    }
    if (!node) return create(child);
    update(node, child);
    return node;
  });
  const kept = new Set(nodes);
  for (const node of old) if (!kept.has(node)) node.remove();
  let place = parent.firstChild;
  for (const node of nodes) {
    if (node === place) place = place.nextSibling;
    else parent.insertBefore(node, place);
  }
}

function fits(node, child) {
  return child.tag === undefined ? node.nodeType === Node.TEXT_NODE : node.described?.tag === child.tag;
}

function create(child) {
  if (child.tag === undefined) {
    return document.createTextNode(child.text);
  }
  const node = SVG_TAGS.has(child.tag) ? document.createElementNS(SVG, child.tag) : document.createElement(child.tag);
  node.described = { tag: child.tag, props: {}, key: child.key };
  update(node, child);
  child.props.mount?.(node);
  return node;
}

function update(node, child) {
  if (child.tag === undefined) {
    if (node.data !== child.text) node.data = child.text;
    return;
  }
  const before = node.described.props;
  const { props } = child;
  for (const name in before) if (!(name in props)) set(node, name, undefined);
  for (const name in props) if (props[name] !== before[name]) set(node, name, props[name]);
  node.described = child;
  if (props.html === undefined && !props.mount) reconcile(node, child.children);
}

function set(node, name, value) {
  if (name === 'key' || name === 'mount') return;
  if (name === 'html') node.innerHTML = value ?? '';
  else if (name === 'css') Object.assign(node.style, value);
  else if (name.startsWith('on')) listen(node, name.slice(2), value);
  else if (name === 'value') node.value = value ?? '';
  else if (value === undefined || value === null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? '' : value);
}

// One listener per kind of event that looks up what to call, so that a new function costs nothing.
function listen(node, kind, handler) {
  node.handlers ??= {};
  if (!(kind in node.handlers)) node.addEventListener(kind, (event) => node.handlers[kind]?.(event));
  node.handlers[kind] = handler;
}
