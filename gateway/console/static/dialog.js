/** Questions in a dialog: a form with what it is about. The focus comes back to where it was, by the browser. */

import { make } from "./dom.js";
import { refusal } from "./parts.js";

/**
 * `body` are nodes of the form; `act` does it, and throws what is then told in the dialog. `when` says whether it can
 * be done as the form is. What `act` returns, if anything, takes the form's place, until the person closes it.
 */
export function askInDialog({ title, body, submit, isDangerous = false, act, when = () => true }, signal) {
  const id = `dialog-${(dialogs += 1)}`;
  const trouble = make("div");
  const go = make("button", { type: "submit", className: isDangerous ? "danger" : "primary" }, submit);
  const cancel = make("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  const form = make(
    "form",
    { method: "dialog", noValidate: true },
    make("h2", { id }, title),
    ...body,
    trouble,
    make("p", { className: "row" }, go, cancel),
  );
  const dialog = make("dialog", { attributes: { "aria-labelledby": id } }, form);
  const show = (told) => {
    const done = make("button", { type: "button", className: "primary", onclick: () => dialog.close() }, "Done");
    const heading = make("h2", { id, tabIndex: -1 }, title);
    form.replaceChildren(heading, ...told, make("p", { className: "row" }, done));
    heading.focus();
  };
  const look = () => (go.disabled = !when());
  form.oninput = look;
  look();
  let isActing = false; // not `disabled` meanwhile: the button would lose the focus
  form.onsubmit = async (event) => {
    event.preventDefault();
    if (isActing || !when()) return;
    isActing = true;
    trouble.replaceChildren();
    try {
      const told = await act();
      if (told === undefined) dialog.close();
      else show(told);
    } catch (error) {
      trouble.replaceChildren(refusal(error));
    } finally {
      isActing = false;
    }
  };
  dialog.onclose = () => dialog.remove();
  signal.addEventListener("abort", () => dialog.close());
  document.body.append(dialog);
  dialog.showModal();
}

let dialogs = 0;

/** A labelled line of a form. */
export function fieldOf(label, input, hint = "") {
  const id = `input-${(dialogs += 1)}`;
  input.id = id;
  const about = make("p", { className: "note", id: `${id}-about` }, hint);
  if (hint) input.setAttribute("aria-describedby", about.id);
  return make("div", { className: "field" }, make("label", { htmlFor: id }, label), input, hint ? about : "");
}
