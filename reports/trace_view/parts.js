// A message in the language of the page, whose words the page carries; without them it stays English. {name} takes a value.
const word = (message, values = {}) => {
  if (!word.known) {
    const carried = document.getElementById("words");
    word.known = carried ? JSON.parse(carried.textContent) : {};
  }
  return (word.known[message] || message).replace(/\{(\w+)\}/g, (_, name) => values[name]);
};
// What the live parts of a page share.
const parts = {
  element: (tag, text = "", set = {}) => Object.assign(document.createElement(tag), { textContent: text }, set),
  button: (bar, text, title, act) => {
    const one = parts.element("button", text, { type: "button", title, onclick: act });
    one.setAttribute("aria-label", title);
    bar.append(one);
    return one;
  },
  // From one part to a kernel in another: "launches" in the timeline, "point" on a roofline.
  show: (what, kernel) => document.dispatchEvent(new CustomEvent(`kernel-${what}`, { detail: kernel })),
  listen: (what, act) => document.addEventListener(`kernel-${what}`, (event) => act(event.detail)),
  detail: (kernel) => document.getElementById(`kernel-${kernel}`),
  // A button at the head of the details of each of some kernels.
  offer: (text, kernels, act) => {
    for (const kernel of kernels) {
      const place = parts.detail(kernel), head = place && place.querySelector("summary");
      if (head) head.after(parts.element("button", text, { type: "button", className: "trace-go", onclick: () => act(kernel) }));
    }
  },
};
